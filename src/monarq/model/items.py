"""Items of work queues, and their attempts."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from monarq.ids import MessageIdText, NumberText
from monarq.times import Micros


class ItemState(StrEnum):
    SCHEDULED = "scheduled"
    READY = "ready"
    LEASED = "leased"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


class AttemptOutcome(StrEnum):
    """How one lease of an item ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    RETRY = "retry"
    DEAD = "dead"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Item(Struct, frozen=True, rename="camel", kw_only=True):
    id: MessageIdText
    queue: str
    partition_id: NumberText
    seq: int
    transaction_id: str
    state: ItemState
    priority: int
    effective_priority: int
    attempts: int
    max_attempts: int
    backoff_base: float
    created_at: Micros
    run_at: Micros | None
    """When a scheduled item becomes ready."""
    lease_until: Micros | None
    finished_at: Micros | None
    consumer: str | None
    """Who has it, or had it when it was finished; null while it waits."""
    error: str | None
    trace_id: str | None
    producer: str | None = field(name="producerSub")
    raw: Annotated[Raw, Meta(description="the payload, as it was pushed")] = field(name="data")
    raw_headers: (
        Annotated[Raw, Meta(description="its headers, an object, if it has any")] | UnsetType
    ) = field(name="headers", default=UNSET)

    @property
    def payload(self) -> bytes:
        return bytes(self.raw)

    @property
    def headers(self) -> bytes | None:
        return None if isinstance(self.raw_headers, UnsetType) else bytes(self.raw_headers)


class Attempt(Struct, frozen=True, rename="camel", kw_only=True):
    """One lease of an item, from its pop to its end."""

    attempt: int
    started_at: Micros
    ended_at: Micros
    outcome: AttemptOutcome
    consumer: str | None
    error: str | None
    raw_result: Raw | UnsetType = field(name="result", default=UNSET)

    @property
    def result(self) -> bytes | None:
        return None if isinstance(self.raw_result, UnsetType) else bytes(self.raw_result)


class LoggedAttempt(Attempt, frozen=True, rename="camel", kw_only=True):
    """An attempt in a list that is not about one item."""

    item_id: str
    queue: str


class ItemDetail(Item, frozen=True, rename="camel", kw_only=True):
    history: list[Attempt]
    """Its finished attempts, oldest first."""


class OutputPart(Struct, frozen=True, kw_only=True):
    """Part of what an attempt has printed so far."""

    id: MessageIdText
    attempt: int
    data: Annotated[bytes, Meta(description="base64")]
    next: int
    """Where to go on: the number of bytes before it."""
