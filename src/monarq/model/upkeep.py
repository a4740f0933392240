"""What is kept beside the queues, and what the lifecycle did."""

from __future__ import annotations

from msgspec import Struct


class Record(Struct, frozen=True, rename="camel", kw_only=True):
    """Something that is known by a name and kept beside the queues: a worker, a schedule, a run.
    `value` is JSON."""

    kind: str
    key: str
    value: bytes
    updated_at: int
    expires_at: int | None = None


class LifecycleReport(Struct, frozen=True, kw_only=True):
    """What one bounded step of the lifecycle did."""

    next_at: int | None
    """When there will be something to do, as far as is known now; it may be past, if the
    step reached its bound before the work was done."""
    expired: int = 0
    promoted: int = 0
    buried: int = 0
    removed: int = 0
    wake: list[str] = []
    """Queues in which something became available."""
