"""Queues, in and out."""

from __future__ import annotations

from msgspec import Struct

from monarq.model import QueueCounts
from monarq.wire.paging import PageAnswer, PageQuery
from monarq.wire.shown import NameFilter, TimeText


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
