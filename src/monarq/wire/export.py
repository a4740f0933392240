"""Export: what can be read, and which part of it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from monarq.wire.fields import Name
from monarq.wire.paging import PageAnswer, PageQuery
from monarq.wire.shown import NameFilter, PartitionIdText, TimeFilter

Seq = Annotated[int, Meta(ge=1, le=2**53)]
SeqsOfPartition = Annotated[
    list[Annotated[int, Meta(ge=1, le=2**53)]],
    Meta(
        min_length=3,
        max_length=3,
        description="the partition's number, the first and the last seq, both included",
    ),
]
Position = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{19}(\.[0-9]{19})?$",
        description="a place in a log, as `log-end` has told it; positions sort as texts",
    ),
]
Columns = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=64)]], Meta(min_length=1, max_length=64)
]
ColumnList = Annotated[
    str, Meta(min_length=1, max_length=1024, description="names of columns, with commas between")
]
LogName = Annotated[
    str,
    Meta(
        max_length=64,
        description="deliveries, dead_letters, attempts or metrics",
    ),
]
TableName = Annotated[
    str,
    Meta(
        max_length=64,
        description="deliveries, dead_letters, attempts, metrics, items, queues or groups",
    ),
]


class PlanQuery(PageQuery, frozen=True, kw_only=True, rename="camel"):
    queue: NameFilter


class PlanRow(Struct, frozen=True, kw_only=True, rename="camel"):
    partition_id: PartitionIdText
    partition: str
    first_seq: int
    last_seq: int
    """Less than `firstSeq` if nothing is kept."""


class PlanAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    queue: str
    partitions: list[PlanRow]


class ExportQueueQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    queue: NameFilter


class ExportPartitionsQuery(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    queue: NameFilter
    created_from: TimeFilter | None = None
    """Only what was pushed from then on."""
    created_to: TimeFilter | None = None
    """Only what was pushed before."""


class ReadQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    partition_id: PartitionIdText
    from_: Seq = field(default=1, name="from")
    """The first seq."""
    to: Seq | None = None
    """The last seq, included; what is the last one when the reading begins, if left out."""
    columns: ColumnList | None = None
    """All of the table `messages`, if left out."""


class MessagesBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ranges: Annotated[list[SeqsOfPartition], Meta(max_length=1_000_000)]
    """Read one after the other; what is not kept is left out."""
    columns: Columns | None = None
    """All of the table `messages`, if left out."""


class RowsBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    table: TableName
    columns: Columns | None = None
    """All of the table, if left out."""
    after: Position | None = None
    """Logs: only rows behind this position."""
    until: Position | None = None
    """Logs: only rows up to this position."""
    queues: Annotated[list[Name], Meta(max_length=100_000)] | None = None
    """Only rows of these; of all, if left out."""


class LogEndQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    table: LogName


class LogEndAnswer(Struct, frozen=True, kw_only=True):
    table: str
    position: Position
    """Whoever reads up to it, and later on from it, misses nothing and gets nothing twice."""


class ArchivedBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    queue: Name
    positions: Annotated[
        dict[PartitionIdText, Annotated[int, Meta(ge=0, le=2**53)]], Meta(max_length=10_000)
    ]
    """By the partition's number: the seq up to which, included, it is archived."""


class ArchivedAnswer(Struct, frozen=True, kw_only=True):
    queue: str
    positions: dict[str, int]
    """By the partition's number, of those that have one."""
