"""What the dashboard shows of queues, groups and partitions, in and out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from monarq.model import QueueKind, QueueOptions
from monarq.wire.fields import Text
from monarq.wire.paging import Limit
from monarq.wire.shown import NameFilter, PartitionIdText, TimeText

Order = Literal["asc", "desc"]
AnyOffset = Annotated[int, Meta(ge=0, le=10_000_000, description="how many rows to pass over")]
Rate = Annotated[float, Meta(description="per second, over the last seconds")]
Seconds = Annotated[float, Meta(description="seconds")]


class QueueLine(Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    kind: QueueKind
    namespace: str
    task: str
    paused: bool
    partitions: int
    groups: int
    stored: int
    pending: int
    dead_letters: int
    pushed: int
    completed: int
    failed: int
    dead: int
    in_: Rate = field(name="in")
    out: Rate
    failing: Rate
    lag_seconds: Seconds
    """Age of the oldest message that its slowest group has before it."""
    slowest_group: str | None
    max_size: int
    states: dict[str, int]
    """Work queues: items by state."""
    runs_commands: bool


GroupState = Literal["idle", "caught up", "working", "behind", "stuck"]


class GroupLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """A group in one queue."""

    name: str
    queue: str
    lag: int
    lag_seconds: Seconds
    out: Rate
    failing: Rate
    completed: int
    failed: int
    dead: int
    state: GroupState
    """Stuck: it is behind, and nothing was completed for it lately."""
    created_at: TimeText


class ListQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    limit: Limit = 100
    offset: AnyOffset = 0
    order: Order = "asc"
    search: NameFilter | None = None
    """Part of the name, in any case."""


class ListAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    total: int
    """All that match, on every page."""
    limit: int
    offset: int
    at: TimeText
    """When the store was asked; a few seconds ago at most."""


QueueSort = Literal[
    "name", "pending", "lagSeconds", "in", "out", "deadLetters", "stored", "partitions", "failed"
]


class QueueLinesQuery(ListQuery, frozen=True, kw_only=True, rename="camel"):
    kind: QueueKind | None = None
    namespace: NameFilter | None = None
    paused: bool | None = None
    sort: QueueSort = "name"


class QueueLinesAnswer(ListAnswer, frozen=True, kw_only=True, rename="camel"):
    queues: list[QueueLine]


class QueueSightAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    line: QueueLine
    created_at: TimeText
    options: QueueOptions
    groups: list[GroupLine]
    dead_queue_of: list[str]
    """Queues that have this one as their dead queue."""
    at: TimeText


class ClearLoss(Struct, frozen=True, kw_only=True, rename="camel"):
    messages: int
    leased: int
    text: list[str]


class DeleteLoss(Struct, frozen=True, kw_only=True, rename="camel"):
    messages: int
    dead_letters: int
    groups: int
    partitions: int
    text: list[str]
    blocked_by: list[str]
    """Queues that have this one as their dead queue: it cannot be deleted."""


class LossesAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """What would be lost."""

    queue: str
    clear: ClearLoss
    clear_scheduled: ClearLoss | None
    """Work queues: if only the scheduled items are removed."""
    clear_unleased: ClearLoss | None
    """Work queues: if the leased items are kept."""
    delete: DeleteLoss


# --- groups ----------------------------------------------------------------------------------


GroupSort = Literal["lag", "lagSeconds", "name", "queue", "failed"]


class GroupLinesQuery(ListQuery, frozen=True, kw_only=True, rename="camel"):
    queue: NameFilter | None = None
    group: NameFilter | None = None
    sort: GroupSort = "queue"


class GroupLinesAnswer(ListAnswer, frozen=True, kw_only=True, rename="camel"):
    groups: list[GroupLine]


class FailingQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=100, description="how many rows at most")] = 20


class FailingRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """A message that fails again and again, and what waits behind it."""

    partition: str
    partition_id: PartitionIdText
    seq: int
    transaction_id: str
    attempts: int
    """Deliveries that have failed or run out."""
    retry_limit: int
    retry_at: TimeText | None
    consumer: str | None
    lease_until: TimeText | None
    error: str | None
    created_at: TimeText
    age_seconds: Seconds
    behind: int
    data: Annotated[Any, Meta(description="the payload; null if it is larger than 64 KiB")]


class FailingAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    failing: list[FailingRow]
    """Most attempts first."""
    truncated: bool


class SkipBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    seq: Annotated[int, Meta(ge=1, le=2**53)]
    """The message that is next for the group in this partition."""
    error: Text | None = None
    """Why, for those who look at the dead letter."""


class Skipped(Struct, frozen=True, kw_only=True, rename="camel"):
    success: bool
    consumer_group: str
    queue_name: str
    partition: str
    seq: int
    lag: int
    """Messages that are before the group in this partition now."""


# --- partitions ------------------------------------------------------------------------------


PartitionSort = Literal["id", "lag", "age", "stored", "attempts"]
PartitionState = Literal["drained", "available", "leased", "retrying", "delayed"]


class PartitionLinesQuery(ListQuery, frozen=True, kw_only=True, rename="camel"):
    group: NameFilter | None = None
    """As this group sees them; without it, as the group that is furthest behind."""
    sort: PartitionSort = "id"


class PartitionLine(Struct, frozen=True, kw_only=True, rename="camel"):
    partition_id: PartitionIdText
    partition: str
    first_seq: int
    last_seq: int
    stored: int
    lag: int
    position: int
    age_seconds: Seconds | None
    """Of the oldest message before the group."""
    last_pushed_at: TimeText
    state: PartitionState
    consumer: str | None
    """Who holds the lease."""
    leased_at: TimeText | None
    lease_until: TimeText | None
    head_seq: int | None
    """The message that is next."""
    attempts: int
    """Deliveries of it that have failed or run out."""
    retry_at: TimeText | None


class PartitionLinesAnswer(ListAnswer, frozen=True, kw_only=True, rename="camel"):
    queue: str
    group: str | None
    partitions: list[PartitionLine]
    truncated: bool
    """Whether there are more partitions than were looked at."""


HeatMeasure = Literal["lag", "age", "stored", "attempts"]


class HeatQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    group: NameFilter | None = None
    by: HeatMeasure = "lag"
    cells: Annotated[int, Meta(ge=1, le=4096, description="how many cells at most")] = 1024


class HeatAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """Very many partitions as cells of several, each shown by the worst in it."""

    queue: str
    group: str | None
    by: HeatMeasure
    partitions: int
    per_cell: int
    max: float
    values: list[float]
    states: str
    """A letter a cell: d drained, a available, l leased, r retrying, w delayed."""
    first_ids: list[PartitionIdText]
    names: list[str]
    """Of the first partition of each cell."""
    truncated: bool
    at: TimeText
