"""What a consumer wants, and what it gets."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from monarq.ids import message_id
from monarq.model.limits import DEFAULT_GROUP


class StartFrom(StrEnum):
    ALL = "all"
    NEW = "new"


class Pop(Struct, frozen=True, kw_only=True, gc=False):
    """Wants messages of one queue, or of the ordered queues of a namespace and/or task."""

    queue: str | None = None
    partition: str | None = None
    namespace: str | None = None
    task: str | None = None
    group: str = DEFAULT_GROUP
    batch: int = 1
    partitions: int = 1
    lease_seconds: float | None = None
    auto_ack: bool = False
    start: StartFrom | int = StartFrom.ALL
    """Where a group that is new begins; an int is a point in time. A group that exists
    goes on from its cursor whatever this says."""
    consumer: str | None = None
    commands: bool = True
    """Whether the caller may work on shell commands; without it, queues that run commands refuse
    the pop with `ForbiddenError`. The server sets it by the caller's role."""


class Message(Struct, frozen=True, gc=False):
    """A delivered message or item."""

    queue: str
    partition: str
    partition_id: int
    seq: int
    transaction_id: str
    payload: bytes
    created_at: int
    attempts: int
    """Which delivery to this group this is, counted from 1."""
    trace_id: str | None = None
    producer: str | None = None
    headers: bytes | None = None
    priority: int | None = None
    max_attempts: int | None = None
    is_command: bool = False
    """Whether the store vouches for this item as a shell command: it was pushed with
    `Push.commands`. Set by a store only; a worker runs no command without it."""

    @property
    def id(self) -> str:
        return message_id(self.partition_id, self.seq)


class Popped(Struct, frozen=True, kw_only=True):
    messages: Sequence[Message]
    """Read it as one may a list; the store may make messages only when they are looked at."""
    lease_id: str | None = None
    """None where nothing was found, or nothing needs an ack."""
    lease_until: int | None = None
    next_at: int | None = None
    """Where nothing was found: when, by what is known now, something will be there. With messages:
    more was there, and had no room in the answer."""
