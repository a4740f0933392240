"""What is kept beside the queues, and what the lifecycle did."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Raw, Struct, field

from monarq.times import Micros


class Record(Struct, frozen=True, rename="camel", kw_only=True):
    """A small JSON value kept beside the queues under a name: a worker, a schedule, a run."""

    kind: str
    key: str
    raw: Annotated[Raw, Meta(description="as it was put")] = field(name="value")
    updated_at: Micros
    expires_at: Micros | None = None

    @property
    def value(self) -> bytes:
        return bytes(self.raw)


class LifecycleReport(Struct, frozen=True, kw_only=True):
    """What one bounded step of the lifecycle did."""

    next_at: int | None
    """When there will be something to do, as far as is known now; it may be past, if the
    step reached its bound before the work was done."""
    expired: int = 0
    promoted: int = 0
    buried: int = 0
    removed: int = 0
    made: int = 0
    """Cursors of new groups."""
    wake: list[str] = []
    """Queues in which something became available."""
