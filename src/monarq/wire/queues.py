"""Queues, in and out."""

from __future__ import annotations

from msgspec import Struct

from monarq.model import QueueKind, QueueOptions
from monarq.wire.paging import PageAnswer, PageQuery
from monarq.wire.shown import NameFilter, PartitionIdText, TimeText


class QueuesQuery(PageQuery, frozen=True, kw_only=True, rename="camel"):
    namespace: NameFilter | None = None
    task: NameFilter | None = None
    search: NameFilter | None = None
    """Part of the name, in any case."""


class QueueCounts(Struct, frozen=True, kw_only=True, rename="camel"):
    total: int
    """What is kept now."""
    pending: int
    """Ordered: what the slowest group still has before it. Work: what is not finished."""
    pushed: int
    completed: int
    failed: int
    dead: int
    dead_letters: int
    states: dict[str, int]
    """Work queues: items by state."""


class QueueRow(Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    name: str
    kind: QueueKind
    namespace: str
    task: str
    paused: bool
    created_at: TimeText
    partitions: int
    messages: QueueCounts
    options: QueueOptions


class QueuesAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    queues: list[QueueRow]


class QueueDeleted(Struct, frozen=True, kw_only=True, rename="camel"):
    deleted: bool
    """False: there was none."""
    queue: str
    messages: int
    """How many messages or items went with it."""
    dead_letters: int


class ClearBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """For work queues; an empty body clears the whole queue, of either kind."""

    scheduled_only: bool = False
    """Remove only the scheduled items."""
    keep_leased: bool = False
    """Leave the items that are under a live lease."""


class QueueCleared(Struct, frozen=True, kw_only=True, rename="camel"):
    queue: str
    cleared: int


class QueuePaused(Struct, frozen=True, kw_only=True, rename="camel"):
    queue: str
    paused: bool


class LabelRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """A namespace or a task, with what is in its queues."""

    name: str
    queues: int
    partitions: int
    messages: int
    pending: int


class NamespacesAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    namespaces: list[LabelRow]
    total: int


class TasksAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    tasks: list[LabelRow]
    total: int


class OverviewAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    queues: int
    ordered_queues: int
    work_queues: int
    paused_queues: int
    namespaces: int
    tasks: int
    partitions: int
    messages: QueueCounts
    timestamp: TimeText


class PartitionsQuery(PageQuery, frozen=True, kw_only=True, rename="camel"):
    queue: NameFilter


class PartitionRow(Struct, frozen=True, kw_only=True, rename="camel"):
    id: PartitionIdText
    name: str
    queue: str
    first_seq: int
    last_seq: int
    """Less than `firstSeq` if nothing is kept."""
    pending: int
    last_pushed_at: TimeText


class PartitionsAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    partitions: list[PartitionRow]


class DepthQuery(PageQuery, frozen=True, kw_only=True, rename="camel"):
    group: NameFilter | None = None


class PartitionDepth(Struct, frozen=True, kw_only=True, rename="camel"):
    partition: str
    pending: int


class DepthAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    queue: str
    group: str | None
    pending: int
    partitions_pending: int
    """Of the partitions on this page."""
    conflation: bool
    """Always false: every message is delivered."""
    effective_pending: int
    partitions: list[PartitionDepth]
