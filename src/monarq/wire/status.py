"""How the broker and its queues are, in answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from monarq.health import State
from monarq.model import Group, PartitionStats, QueueCounts, QueueInfo, QueueKind
from monarq.wire.paging import After, Limit, PageAnswer, PageQuery
from monarq.wire.shown import NameFilter, TimeFilter, TimeText


class BufferAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """The files that keep pushes while the store is down, or in maintenance."""

    enabled: bool
    healthy: bool
    """Whether it can be written, and nothing in it waits for a person."""
    route: str
    """Where pushes go now: `direct`, `buffer` or `hold`."""
    bytes: int
    """Not replayed yet."""
    records: int
    files: int
    oldest: TimeText | None
    set_aside: list[str]
    """Files that could not be replayed, and wait for somebody to look at them."""
    others: list[str] = []
    """Subdirectories with pushes for another store, which this broker does not replay."""
    failing: str | None = None
    """Why the last push could not be written, if it could not."""


class HealthAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    status: Literal["healthy", "degraded", "unhealthy"]
    """Degraded: pushes are taken and kept in files, everything else waits for the store."""
    state: State
    store: Literal["connected", "disconnected"]
    database: Literal["connected", "disconnected"]
    """The same as `store`, as Queen names it."""
    version: str
    uptime_seconds: float
    timestamp: TimeText


class StatusQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    queue: NameFilter | None = None
    namespace: NameFilter | None = None
    task: NameFilter | None = None


class StatusQueueRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """A queue, flat as Queen's command line reads it."""

    id: str
    name: str
    namespace: str
    task: str
    partitions: int
    total_consumed: int
    pending: int
    completed: int
    failed: int
    dlq: int


class StatusAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    state: State
    version: str
    uptime_seconds: float
    timestamp: TimeText
    queues: list[StatusQueueRow]
    """The first 1000 by name; all with `GET /api/v1/status/queues`."""
    queue_count: int
    partitions: int
    messages: QueueCounts
    store_ok: bool
    store_error: str | None
    buffer: BufferAnswer
    maintenance_push: bool
    maintenance_pop: bool
    parked: int
    """Pops that wait for a message, at this process."""
    waiting: dict[str, int]
    """Calls that wait for the store, at this process, by kind."""
    peers: dict[str, int] | None


class QueueStatusRow(Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    kind: QueueKind
    namespace: str
    task: str
    paused: bool
    partitions: int
    messages: QueueCounts


class QueueStatusAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    queues: list[QueueStatusRow]


class QueueDetailAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    queue: QueueInfo
    consumer_groups: list[Group]
    """The first so many; all with `GET /api/v1/consumer-groups?queue=`."""
    partitions: list[PartitionStats]
    """The first so many; all with `GET /api/v1/resources/partitions?queue=`."""


class DetailQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    limit: Limit = 100


Interval = Literal["minute", "hour", "day"]


class AnalyticsQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    interval: Interval = "hour"
    from_: TimeFilter | None = field(default=None, name="from")
    """A day before `to`, if it is left out."""
    to: TimeFilter | None = None
    queue: NameFilter | None = None
    namespace: NameFilter | None = None
    task: NameFilter | None = None


class DataPoint(Struct, frozen=True, kw_only=True, rename="camel"):
    timestamp: TimeText
    """Where the interval begins."""
    messages: int
    """The same as `pushed`, as Queen names it."""
    pushed: int
    completed: int
    failed: int
    dead: int
    pending: int
    """At the end of the interval."""


class AnalyticsAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    interval: Interval
    from_: TimeText = field(name="from")
    to: TimeText
    data_points: list[DataPoint]


class OpsQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    interval: Interval = "minute"
    from_: TimeFilter | None = field(default=None, name="from")
    """An hour before `to`, if it is left out."""
    to: TimeFilter | None = None
    queue: NameFilter | None = None
    limit: Annotated[int, Meta(ge=1, le=100, description="how many queues at most")] = 20
    after: After | None = None


class QueueOps(Struct, frozen=True, kw_only=True, rename="camel"):
    queue: str
    data_points: list[DataPoint]


class OpsAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    interval: Interval
    from_: TimeText = field(name="from")
    to: TimeText
    queues: list[QueueOps]
    next: str | None


class LagQuery(PageQuery, frozen=True, kw_only=True, rename="camel"):
    queue: NameFilter | None = None


class LagRow(Struct, frozen=True, kw_only=True, rename="camel"):
    queue: str
    consumer_group: str
    lag: int
    lag_seconds: float


class LagAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    lag: list[LagRow]


class ProcessFigures(Struct, frozen=True, kw_only=True, rename="camel"):
    """Of the process that answers."""

    hostname: str
    pid: int
    version: str
    python: str
    started_at: TimeText
    uptime_seconds: float
    cpu_user_seconds: float
    cpu_system_seconds: float
    memory_bytes: int
    open_files: int | None
    threads: int
    processors: int


class SystemMetricsAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    timestamp: TimeText
    process: ProcessFigures


class DistributionFigures(Struct, frozen=True, kw_only=True, rename="camel"):
    count: int
    mean: float
    buckets: dict[str, int]
    """How many were at or below each bound; `more` for those above the last."""


class CallFigures(Struct, frozen=True, kw_only=True, rename="camel"):
    calls: int
    messages: int
    errors: int
    in_flight: int
    batch_calls: DistributionFigures
    """Calls that went to the store together."""
    batch_messages: DistributionFigures
    store_seconds: DistributionFigures


class WorkerMetricsAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """The broker of the process that answers, since it was started."""

    timestamp: TimeText
    hostname: str
    pid: int
    state: State
    calls: dict[str, CallFigures]
    pops: dict[str, int]
    """By what became of them; `pending`, `leasing` and `parked` are under way."""
    wakes: dict[str, int]
    """Waiting pops that were woken, by cause."""
    lifecycle: dict[str, int]
    overloaded: int
    store_failures: int
    buffered: int
    replayed: int


class TimeRange(Struct, frozen=True, kw_only=True, rename="camel"):
    from_: TimeText = field(name="from")
    to: TimeText


class Replica(Struct, frozen=True, kw_only=True, rename="camel"):
    hostname: str
    worker_id: int
    """Its process id."""


class ParkedPoint(Replica, frozen=True, kw_only=True, rename="camel"):
    bucket: TimeText
    queue_name: str | None
    """Always null: of all queues together."""
    parked_count: int


class ParkedAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """Pops that wait at the process that answers, now, in Queen's shape."""

    time_range: TimeRange
    series: list[ParkedPoint]
    replicas: list[Replica]


class RetentionFigures(Struct, frozen=True, kw_only=True, rename="camel"):
    total_msgs: int


class RetentionPoint(RetentionFigures, frozen=True, kw_only=True, rename="camel"):
    bucket: TimeText


class RetentionAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """Messages that the process that answers has removed since it was started, by retention or
    because they waited too long, in Queen's shape."""

    time_range: TimeRange
    series: list[RetentionPoint]
    totals: RetentionFigures


class StoreStatsAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    available: bool
    """Whether the store is PostgreSQL."""
    timestamp: TimeText
    figures: dict[str, Any]
    """Of PostgreSQL: size, connections, dead tuples, oldest xmin age, and those of each table.
    Of SQLite: the size of the file and its pages."""


class Refreshed(Struct, frozen=True, kw_only=True, rename="camel"):
    refreshed: bool
    """Always false: the counters are always current."""
