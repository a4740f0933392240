"""What the dashboard shows of everything together, in and out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from monarq.health import State
from monarq.ids import MessageIdText
from monarq.model import Item, ItemState
from monarq.wire.paging import Limit
from monarq.wire.shown import (
    DeadLetterId,
    NameFilter,
    PartitionIdText,
    TimeFilter,
    TimeText,
)
from monarq.wire.status import BufferAnswer, ProcessFigures
from monarq.wire.watching import Rate, Seconds

Percentile = Annotated[float, Meta(description="seconds from push to completion")]
HealthStatus = Literal["healthy", "degraded", "unhealthy"]


class Attention(Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that somebody should look at, in plain words, and where it leads."""

    id: str
    """The same as long as it is the same thing."""
    severity: Literal["critical", "warning", "notice"]
    kind: str
    text: str
    """Names stand in backticks."""
    hint: str
    """What can be done."""
    page: Literal["queue", "group", "deadLetters", "jobs", "workers", "system", "pipeline"]
    since: TimeText | None = None
    queue: str | None = None
    group: str | None = None
    partition: str | None = None
    partition_id: PartitionIdText | None = None
    seq: int | None = None
    transaction_id: str | None = None


class StoreHealth(Struct, frozen=True, kw_only=True, rename="camel"):
    kind: Literal["sqlite", "postgresql"]
    ok: bool
    error: str | None
    bytes: int | None


class HealthSight(Struct, frozen=True, kw_only=True, rename="camel"):
    status: HealthStatus
    state: State
    uptime_seconds: Seconds
    store: StoreHealth
    buffer: BufferAnswer
    peers: dict[str, int] | None
    parked: int
    maintenance_push: bool
    maintenance_pop: bool


class WorkerCounts(Struct, frozen=True, kw_only=True, rename="camel"):
    running: int
    lost: int
    stopped: int
    jobs: int
    """That they run now."""


class TotalsSight(Struct, frozen=True, kw_only=True, rename="camel"):
    queues: int
    paused_queues: int
    partitions: int
    groups: int
    stored: int
    pending: int
    dead_letters: int
    pushed: int
    completed: int
    failed: int
    dead: int
    scheduled: int
    ready: int
    leased: int


class RatesSight(Struct, frozen=True, kw_only=True, rename="camel"):
    in_: Rate = field(name="in")
    out: Rate
    failed: Rate
    dead: Rate


class LagSight(Struct, frozen=True, kw_only=True, rename="camel"):
    messages: int
    """Before all groups together."""
    seconds: Seconds
    """Of the group that is furthest behind."""
    groups_behind: int
    """By more than a minute."""


class LatencySight(Struct, frozen=True, kw_only=True, rename="camel"):
    """Of the last five minutes, from an even sample."""

    p50: Percentile | None
    p95: Percentile | None
    p99: Percentile | None
    samples: int


class OverviewSight(Struct, frozen=True, kw_only=True, rename="camel"):
    at: TimeText
    version: str
    health: HealthSight
    workers: WorkerCounts
    totals: TotalsSight
    rates: RatesSight
    lag: LagSight
    latency: LatencySight
    attention: list[Attention]
    """The worst first, 50 at most."""


# --- over time -------------------------------------------------------------------------------


RangeName = Literal["15m", "1h", "6h", "24h", "7d", "30d"]


class SeriesQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    range: RangeName = "1h"
    queue: NameFilter | None = None


class SeriesAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """Lists of the same length, a value a step; null where nothing is known."""

    range: RangeName
    from_: TimeText = field(name="from")
    to: TimeText
    step_seconds: int
    times: list[TimeText]
    """Where each step begins."""
    in_: list[float | None] = field(name="in")
    """Messages per second that were pushed."""
    out: list[float | None]
    failed: list[float | None]
    dead: list[float | None]
    pending: list[int | None]
    """At the end of the step."""
    lag_seconds: list[float | None]
    """Of the group furthest behind, at the end of the step; of one queue it is not known."""
    p50: list[float | None]
    p95: list[float | None]
    p99: list[float | None]


# --- messages and dead letters ---------------------------------------------------------------


class FindQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    transaction_id: NameFilter
    """Or an id, such as 12-345."""
    queue: NameFilter | None = None
    """Where to look; without it in up to 1000 queues."""


class FoundRow(Struct, frozen=True, kw_only=True, rename="camel"):
    queue: str
    partition: str
    partition_id: PartitionIdText
    seq: int
    id: MessageIdText
    transaction_id: str
    kind: Literal["message", "item"]


class FindAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    found: list[FoundRow]
    truncated: bool


class DeliveriesQuery(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    limit: Limit = 100


class DeliveryRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One answer to (part of) a lease; the counts are of all messages from `firstSeq` to
    `lastSeq`."""

    group: str
    consumer: str | None
    lease_number: int
    leased_at: TimeText
    ended_at: TimeText
    seconds: Seconds
    first_seq: int
    last_seq: int
    completed: int
    failed: int
    released: int
    dead: int
    expired: int
    error: str | None


class DeliveriesAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    deliveries: list[DeliveryRow]
    """Newest first; the log is kept for 7 days."""
    truncated: bool


class GroupStateRow(Struct, frozen=True, kw_only=True, rename="camel"):
    group: str
    state: Literal["pending", "leased", "retrying", "done", "dead"]
    is_head: bool
    """Whether it is the next one for the group in its partition."""
    attempts: int
    """Of the next one: deliveries that have failed or run out."""
    retry_limit: int
    consumer: str | None
    lease_until: TimeText | None
    retry_at: TimeText | None


class GroupStatesAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    groups: list[GroupStateRow]


class ErrorsQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    queue: NameFilter | None = None
    consumer_group: NameFilter | None = None
    partition: NameFilter | None = None
    from_: TimeFilter | None = field(default=None, name="from")
    to: TimeFilter | None = None
    search: NameFilter | None = None
    """Part of the error, in any case."""
    limit: Limit = 100


class ErrorRow(Struct, frozen=True, kw_only=True, rename="camel"):
    queue: str
    consumer_group: str
    error: str
    """The first line, 200 characters at most: what `error` filters dead letters by."""
    count: int
    oldest: TimeText
    newest: TimeText
    newest_id: DeadLetterId


class ErrorsAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    errors: list[ErrorRow]
    """The most frequent first."""
    total: int
    """Dead letters in them."""
    truncated: bool


# --- jobs and workers ------------------------------------------------------------------------


class ItemSearchQuery(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    queue: NameFilter
    state: ItemState | None = None
    search: NameFilter | None = None
    """Part of its id, transaction id, payload, error or consumer, in any case."""
    limit: Limit = 100


class ItemSearchAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    items: list[Item]
    """Newest first."""
    truncated: bool
    """Whether there are more, or more than were looked at."""


class RunningJobLine(Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    job: str
    queue: str
    attempt: int
    started_at: str
    what: str


class WorkerLine(Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    host: str
    pid: int | None
    queues: list[str]
    concurrency: int
    state: Literal["running", "stopping", "stopped", "lost"]
    """Lost: it has said nothing for too long, though it did not stop."""
    started_at: str
    heartbeat_at: str
    silent_seconds: Seconds
    running: list[RunningJobLine]
    completed: int
    failed: int


class ScheduleLine(Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    expression: str
    zone: str
    last_tick: str | None
    next_tick: str


class WorkersAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    workers: list[WorkerLine]
    schedules: list[ScheduleLine]
    at: TimeText


class WorkerStopping(Struct, frozen=True, kw_only=True, rename="camel"):
    stopping: bool


# --- the system ------------------------------------------------------------------------------


class ConnectionCounts(Struct, frozen=True, kw_only=True, rename="camel"):
    open: int
    requests: int
    """Since the start."""
    streams: int
    """Pages that watch."""


class StoreSight(Struct, frozen=True, kw_only=True, rename="camel"):
    kind: Literal["sqlite", "postgresql"]
    figures: dict[str, Any]


class CallLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """Calls of one kind to the store, of the process that answers, since its start."""

    call: str
    calls: int
    messages: int
    errors: int
    in_flight: int
    mean_seconds: Seconds
    p50: Seconds | None
    p95: Seconds | None
    p99: Seconds | None


class SlowCall(Struct, frozen=True, kw_only=True, rename="camel"):
    what: str
    status: int
    seconds: Seconds
    at: TimeText


class GrowthPoint(Struct, frozen=True, kw_only=True, rename="camel"):
    at: TimeText
    bytes: int


class SystemAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    at: TimeText
    process: ProcessFigures
    connections: ConnectionCounts
    store: StoreSight
    calls: list[CallLine]
    slow: list[SlowCall]
    """Requests that took longer than `slow_request_ms`, newest first."""
    growth: list[GrowthPoint]
    """The size of the store, hourly, up to 30 days."""
    peers: dict[str, int] | None
    peer_addresses: list[str]
    buffer: BufferAnswer
    maintenance_push: bool
    maintenance_pop: bool


class SettingRow(Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    group: str
    value: Any
    """Of a secret `set` or nothing."""
    default: Any
    is_default: bool
    secret: bool
    description: str
    flag: str
    variable: str


class SettingsAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    settings: list[SettingRow]
