"""What a consumer says about what it got, and what it pushes with that."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from monarq.model.limits import DEFAULT_GROUP
from monarq.model.pushes import Push, Pushed


class AckStatus(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    RETRY = "retry"
    RELEASE = "release"
    DEAD = "dead"


class Ack(Struct, frozen=True, kw_only=True, gc=False):
    """Answers one message (`partition_id` and `transaction_id`), or, with only a
    `lease_id`, everything of that lease that has no answer yet."""

    status: AckStatus = AckStatus.COMPLETED
    transaction_id: str | None = None
    partition_id: int | None = None
    lease_id: str | None = None
    group: str = DEFAULT_GROUP
    error: str | None = None
    retry_at: int | None = None
    result: bytes | None = None
    """Work queues: what the attempt produced, as JSON; kept with the attempt."""
    commands: bool = True
    """As in `Pop`."""


class Acked(Struct, frozen=True, kw_only=True, gc=False):
    queue: str
    partition: str
    transaction_id: str | None
    lease_released: bool
    """Whether the lease on this partition, or on this item, has ended with it."""
    dead: int
    """How many messages this ack made dead."""
    count: int = 1
    """How many messages this ack answered."""


class Renew(Struct, frozen=True):
    lease_id: str
    seconds: float
    commands: bool = True
    """As in `Pop`."""


class Renewed(Struct, frozen=True):
    lease_id: str
    expires_at: int


class Transaction(Struct, frozen=True):
    operations: list[Push | Ack]
    required_leases: list[str] = []


class TransactionDone(Struct, frozen=True):
    results: list[list[Pushed] | Acked]
    """One for each operation, in order."""
