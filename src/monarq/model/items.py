"""Items of work queues, and their attempts."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from monarq.ids import message_id


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
    queue: str
    partition_id: int
    seq: int
    transaction_id: str
    payload: bytes
    state: ItemState
    priority: int
    effective_priority: int
    attempts: int
    max_attempts: int
    backoff_base: float
    created_at: int
    run_at: int | None = None
    """When a scheduled item becomes ready."""
    lease_until: int | None = None
    finished_at: int | None = None
    consumer: str | None = None
    """Who has it, or had it when it was finished; nobody, while it waits."""
    error: str | None = None
    trace_id: str | None = None
    producer: str | None = None
    headers: bytes | None = None

    @property
    def id(self) -> str:
        return message_id(self.partition_id, self.seq)


class Attempt(Struct, frozen=True, rename="camel", kw_only=True):
    """One lease of an item, from its pop to its end."""

    item_id: str
    queue: str
    attempt: int
    started_at: int
    ended_at: int
    outcome: AttemptOutcome
    consumer: str | None = None
    error: str | None = None
    result: bytes | None = None


class OutputPart(Struct, frozen=True, kw_only=True):
    """Part of what an attempt has printed so far."""

    data: bytes
    next: int
    """Where to go on: the number of bytes before it."""
