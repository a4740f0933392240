"""What is to be stored, and what became of it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from monarq.ids import message_id
from monarq.model.limits import DEFAULT_PARTITION


class PushStatus(StrEnum):
    QUEUED = "queued"
    DUPLICATE = "duplicate"
    BUFFERED = "buffered"


class PushItem(Struct, frozen=True, rename="camel", gc=False):
    """One message or item to store. `payload` and `headers` are JSON, kept as they come."""

    queue: str
    payload: bytes
    partition: str = DEFAULT_PARTITION
    transaction_id: str | None = None
    trace_id: str | None = None
    namespace: str | None = None
    """With `task`: labels a queue that this push creates; ignored if it exists."""
    task: str | None = None
    headers: bytes | None = None

    # Work queues only.
    priority: int | None = None
    run_at: int | None = None
    delay_seconds: float | None = None
    max_attempts: int | None = None
    backoff_base: float | None = None


class Push(Struct, frozen=True):
    """All of it or nothing."""

    items: list[PushItem]
    producer: str | None = None
    commands: bool = False
    """Whether the items are shell commands: only queues that run commands take them, and those
    take nothing else. Whoever sets it has made sure that the caller may."""


class Pushed(Struct, frozen=True, gc=False):
    status: PushStatus
    queue: str
    partition_id: int
    seq: int
    transaction_id: str
    trace_id: str | None = None

    @property
    def message_id(self) -> str:
        return message_id(self.partition_id, self.seq)
