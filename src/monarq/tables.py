"""The tables that pipelines read: their columns, types and meaning, in one place.

What the stores export, what travels as Arrow and what Spark shows all follow from `TABLES`.
Nothing here reads anything. Arrow is imported only by those who ask for a schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from monarq.errors import InvalidRequestError

if TYPE_CHECKING:
    import pyarrow as pa


class ColumnType(StrEnum):
    TEXT = "text"
    INT = "int"
    """32 bits."""
    LONG = "long"
    REAL = "real"
    BOOL = "bool"
    TIME = "time"
    """Microseconds since the epoch, UTC."""


class Column(Struct, frozen=True):
    name: str
    type: ColumnType
    meaning: str
    nullable: bool = False


class TableKind(StrEnum):
    """How a table is read, and whether it can be followed as a stream."""

    MESSAGES = "messages"
    """By ranges of seq."""
    LOG = "log"
    """By log positions: rows are added, and removed only by retention."""
    STATE = "state"
    """As it is now; not a stream."""


class Table(Struct, frozen=True):
    name: str
    kind: TableKind
    meaning: str
    columns: tuple[Column, ...]
    time_column: str | None = None
    """What a row is older or younger by."""

    @property
    def column_names(self) -> list[str]:
        return [column.name for column in self.columns]

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise InvalidRequestError(
            f"table {self.name!r} has no column {name!r}: it has {', '.join(self.column_names)}"
        )


_T, _I, _L, _R, _B, _TIME = (
    ColumnType.TEXT,
    ColumnType.INT,
    ColumnType.LONG,
    ColumnType.REAL,
    ColumnType.BOOL,
    ColumnType.TIME,
)

_MESSAGE = (
    Column("queue", _T, "the queue's name"),
    Column("partition", _T, "the partition's name"),
    Column("seq", _L, "counts 1, 2, 3 … in its partition"),
    Column("message_id", _T, "`<partition id>-<seq>`"),
    Column("transaction_id", _T, "as it was pushed; the message id if it was pushed without"),
    Column("trace_id", _T, "as it was pushed", nullable=True),
    Column("payload", _T, "JSON; see `payloadSchema`"),
    Column("producer", _T, "who pushed it, if auth is on", nullable=True),
    Column("created_at", _TIME, "when it was pushed"),
)

_PARTITION_ID = Column("partition_id", _L, "the partition's number")
_GROUP = Column("consumer_group", _T, "the group")

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table("messages", TableKind.MESSAGES, "what ordered queues keep", _MESSAGE, "created_at"),
        Table(
            "items",
            TableKind.STATE,
            "what work queues keep",
            (
                *_MESSAGE,
                Column("priority", _I, "as it was pushed"),
                Column("state", _T, "scheduled, ready, leased, done, dead or cancelled"),
                Column("attempts", _I, "how often it was leased"),
                Column("run_at", _TIME, "when a scheduled item becomes ready", nullable=True),
                Column("max_attempts", _I, "after how many attempts it is dead"),
                Column("finished_at", _TIME, "when it was done, dead or cancelled", nullable=True),
                Column("consumer", _T, "who had it last", nullable=True),
                Column("error", _T, "the last error", nullable=True),
            ),
        ),
        Table(
            "deliveries",
            TableKind.LOG,
            "the delivery log: a row for each answer to a lease of a partition",
            (
                Column("id", _L, "unique in the log"),
                Column("queue", _T, "the queue's name"),
                Column("partition", _T, "the partition's name"),
                _PARTITION_ID,
                _GROUP,
                Column("consumer", _T, "who had the lease", nullable=True),
                Column("lease_number", _L, "counts the leases of the store"),
                Column("leased_at", _TIME, "when it was popped"),
                Column("ended_at", _TIME, "when it was answered, or expired"),
                Column("first_seq", _L, "the first message that was answered"),
                Column("last_seq", _L, "the last message that was answered"),
                Column("completed", _I, "how many were completed"),
                Column("failed", _I, "how many failed and will be retried"),
                Column("released", _I, "how many were given back"),
                Column("dead", _I, "how many became dead letters"),
                Column("expired", _I, "how many had no answer when the lease ran out"),
                Column("error", _T, "the last error", nullable=True),
            ),
            "ended_at",
        ),
        Table(
            "dead_letters",
            TableKind.LOG,
            "what ran out of attempts and was neither redriven nor purged",
            (
                Column("id", _L, "unique in the log"),
                Column("queue", _T, "the queue's name"),
                Column("partition", _T, "the partition's name"),
                _PARTITION_ID,
                Column("seq", _L, "the message's seq"),
                Column("message_id", _T, "`<partition id>-<seq>`"),
                Column("transaction_id", _T, "the message's"),
                _GROUP,
                Column("payload", _T, "JSON; see `payloadSchema`"),
                Column("error", _T, "the last error"),
                Column("attempts", _I, "how often it was delivered"),
                Column("created_at", _TIME, "when it was pushed"),
                Column("failed_at", _TIME, "when it became a dead letter"),
                Column("trace_id", _T, "the message's", nullable=True),
                Column("producer", _T, "the message's", nullable=True),
            ),
            "failed_at",
        ),
        Table(
            "attempts",
            TableKind.LOG,
            "job runs: a row for each lease of an item, when it has ended",
            (
                Column("id", _L, "unique in the log"),
                Column("queue", _T, "the queue's name"),
                Column("item_id", _T, "`<partition id>-<seq>` of the item"),
                Column("attempt", _I, "counts from 1"),
                Column("started_at", _TIME, "when it was leased"),
                Column("ended_at", _TIME, "when it ended"),
                Column("outcome", _T, "completed, failed, retry, dead, expired or cancelled"),
                Column("consumer", _T, "the worker", nullable=True),
                Column("error", _T, "what went wrong", nullable=True),
                Column("result", _T, "JSON, what the attempt produced", nullable=True),
            ),
            "ended_at",
        ),
        Table(
            "metrics",
            TableKind.LOG,
            "each queue's counters, at intervals; rates are differences between two rows",
            (
                Column("at", _TIME, "when they were taken"),
                Column("queue", _T, "the queue's name"),
                Column("pushed", _L, "messages or items pushed so far"),
                Column("completed", _L, "completed so far"),
                Column("failed", _L, "failed so far"),
                Column("dead", _L, "dead so far"),
                Column("pending", _L, "what waited then"),
            ),
            "at",
        ),
        Table(
            "queues",
            TableKind.STATE,
            "the queues with their counters",
            (
                Column("queue", _T, "its name"),
                Column("kind", _T, "ordered or work"),
                Column("namespace", _T, "its label"),
                Column("task", _T, "its other label"),
                Column("paused", _B, "whether pops get nothing"),
                Column("created_at", _TIME, "when it was made"),
                Column("partitions", _L, "how many it has"),
                Column("pushed", _L, "messages or items pushed so far"),
                Column("stored", _L, "how many are kept"),
                Column("pending", _L, "what waits"),
                Column("completed", _L, "completed so far"),
                Column("failed", _L, "failed so far"),
                Column("dead", _L, "dead so far"),
                Column("dead_letters", _L, "dead letters that are kept"),
                Column("options", _T, "JSON, all its options"),
            ),
        ),
        Table(
            "groups",
            TableKind.STATE,
            "the consumer groups of ordered queues",
            (
                Column("queue", _T, "the queue's name"),
                _GROUP,
                Column("created_at", _TIME, "when it was made"),
                Column("lag", _L, "messages that it has not consumed"),
                Column("lag_seconds", _R, "the age of the oldest of them; 0 if there is none"),
                Column("completed", _L, "completed so far"),
                Column("failed", _L, "failed so far"),
                Column("dead", _L, "dead so far"),
            ),
        ),
    )
}


def get_table(name: str) -> Table:
    table = TABLES.get(name)
    if table is None:
        raise InvalidRequestError(f"there is no table {name!r}: use one of {', '.join(TABLES)}")
    return table


def arrow_schema(table: str, columns: Iterable[str] | None = None) -> pa.Schema:
    """The Arrow schema of these columns in this order, or of all of them."""
    import pyarrow as pa

    types = {
        ColumnType.TEXT: pa.string(),
        ColumnType.INT: pa.int32(),
        ColumnType.LONG: pa.int64(),
        ColumnType.REAL: pa.float64(),
        ColumnType.BOOL: pa.bool_(),
        ColumnType.TIME: pa.timestamp("us", tz="UTC"),
    }
    found = get_table(table)
    chosen = found.columns if columns is None else [found.column(name) for name in columns]
    return pa.schema(
        [pa.field(column.name, types[column.type], column.nullable) for column in chosen]
    )
