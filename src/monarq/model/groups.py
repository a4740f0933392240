"""Groups and their cursors."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, Struct, field, structs

from monarq.ids import NumberText
from monarq.times import Micros, StartTime

_LAGGING_SECONDS = 300.0

LagSeconds = Annotated[float, Meta(description="age of the oldest message before the group")]


class Group(Struct, frozen=True, rename="camel", kw_only=True):
    """A group in one queue."""

    name: str
    queue: str = field(name="queueName")
    lag: int
    """Messages that are before it."""
    lag_seconds: LagSeconds
    """Age of the oldest of them; 0 if there is none."""
    total_lag: int = 0
    """The same as `lag`, as Queen names it."""
    max_time_lag: LagSeconds = 0.0
    """The same as `lagSeconds`, as Queen names it."""
    state: Literal["Stable", "Lagging"] = "Stable"
    """Lagging: for more than five minutes."""
    start_at: StartTime = field(name="subscriptionTimestamp")
    """Older messages were not for the group; null if it began at the beginning."""
    created_at: Micros
    completed: int
    failed: int
    dead: int

    def __post_init__(self) -> None:
        set_field = structs.force_setattr
        set_field(self, "total_lag", self.lag)
        set_field(self, "max_time_lag", self.lag_seconds)
        is_behind = self.lag_seconds > _LAGGING_SECONDS
        set_field(self, "state", "Lagging" if is_behind else "Stable")


class Cursor(Struct, frozen=True, rename="camel", kw_only=True):
    """How far a group has come in one partition."""

    partition: str
    partition_id: NumberText
    position: int
    """Seq of the last message that the group has consumed."""
    last_seq: int
    lag: int
    available_at: Micros | None
    """When the partition can be popped; null if it is drained."""
    lease_until: Micros | None
    lease_active: bool
    """Whether the lease has not expired."""


class SeekTo(StrEnum):
    START = "start"
    END = "end"


class SeekPreview(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a seek would do. Messages that are not for the group count too."""

    lag: int
    """Messages that would be before the group."""
    replayed: int
    """Messages that would be delivered again."""
    skipped: int
    """Messages that would never be delivered."""
    partitions: int
    """In which it would move."""
    leases: int
    """That would end."""
