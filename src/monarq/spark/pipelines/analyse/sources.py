"""The lake's tables as this analysis wants them: within the time and the queues asked for, and
deliveries and attempts in one shape.

Times become microseconds here, so that everything after it is plain arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from monarq.clock import SECOND
from monarq.errors import InvalidRequestError, NotFoundError
from monarq.spark.lake.commits import LakeState
from monarq.spark.lake.lake import Lake
from monarq.spark.lake.layout import TABLES
from monarq.spark.lake.reading import read
from monarq.spark.pipelines.analyse.figures import WORKERS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True)
class Scope:
    """What is looked at; nothing said: everything."""

    queues: tuple[str, ...] = ()
    """Names, or patterns with `*` and `?`."""
    start: int | None = None
    end: int | None = None
    """Not included."""

    def has(self, queue: str) -> bool:
        return not self.queues or any(
            queue == pattern or fnmatchcase(queue, pattern) for pattern in self.queues
        )

    @property
    def days(self) -> tuple[date | None, date | None]:
        """The first and the last, both included."""
        return (
            None if self.start is None else _day(self.start),
            None if self.end is None else _day(self.end),
        )

    def has_day(self, day: date) -> bool:
        first, last = self.days
        return (first is None or first <= day) and (last is None or day <= last)


@dataclass(frozen=True)
class Sources:
    """Times are microseconds."""

    messages: DataFrame
    """queue, partition, partition_id, seq, created, bytes"""
    answers: DataFrame
    """queue, group, consumer, partition_id, first_seq, last_seq, leased, ended, completed, failed,
    released, dead, expired, error, is_work, item_id"""
    dead_letters: DataFrame
    """queue, group, partition_id, seq, error, failed_at"""


@dataclass(frozen=True)
class Selection:
    """What of a lake is in the scope, at one moment."""

    lake: Lake
    scope: Scope
    state: LakeState
    queues: list[str]
    rows: int
    """About: days are read whole, and then cut to the time asked for."""


def select(lake: Lake, scope: Scope) -> Selection:
    """Without Spark, so that a mistake is told at once."""
    if scope.start is not None and scope.end is not None and scope.start >= scope.end:
        raise InvalidRequestError("the time to look at ends before it begins")
    state = lake.state()
    files = [file for file in state.files.values() if scope.has(file.queue)]
    if scope.queues and not files:
        raise NotFoundError(f"the lake has nothing of {' or '.join(map(repr, scope.queues))}")
    rows = sum(file.rows for file in files if scope.has_day(file.date))
    return Selection(lake, scope, state, sorted({file.queue for file in files}), rows)


def read_sources(spark: SparkSession, selection: Selection) -> Sources:
    def table(name: str) -> DataFrame:
        first_day, last_day = selection.scope.days
        return read(
            spark,
            selection.lake,
            name,
            queues=selection.queues,
            first_day=first_day,
            last_day=last_day,
            state=selection.state,
        )

    return prepare({name: table(name) for name in TABLES}, selection.scope)


def prepare(tables: Mapping[str, DataFrame], scope: Scope) -> Sources:
    """`tables` are the lake's, by name: messages, deliveries, dead_letters and attempts."""
    from pyspark.sql import functions as f

    def within(table: str, time: str) -> DataFrame:
        rows = tables[table]
        if scope.start is not None:
            rows = rows.where(f.col(time) >= f.timestamp_micros(f.lit(scope.start)))
        if scope.end is not None:
            rows = rows.where(f.col(time) < f.timestamp_micros(f.lit(scope.end)))
        return rows

    messages = within("messages", "created_at").select(
        "queue",
        "partition",
        # A queue that was deleted and made again has the same names and seqs, not the same ids.
        f.substring_index("message_id", "-", 1).cast("long").alias("partition_id"),
        "seq",
        f.unix_micros("created_at").alias("created"),
        f.octet_length("payload").cast("long").alias("bytes"),
    )
    deliveries = within("deliveries", "ended_at").select(
        "queue",
        f.col("consumer_group").alias("group"),
        "consumer",
        "partition_id",
        "first_seq",
        "last_seq",
        f.unix_micros("leased_at").alias("leased"),
        f.unix_micros("ended_at").alias("ended"),
        *(f.col(name).cast("long") for name in _COUNTS),
        "error",
        f.lit(False).alias("is_work"),
        f.lit(None).cast("string").alias("item_id"),
    )
    attempts = within("attempts", "ended_at").select(
        "queue",
        f.lit(WORKERS).alias("group"),
        "consumer",
        *(f.lit(None).cast("long").alias(name) for name in ("partition_id", "first_seq")),
        f.lit(None).cast("long").alias("last_seq"),
        f.unix_micros("started_at").alias("leased"),
        f.unix_micros("ended_at").alias("ended"),
        *(_counts_as(outcomes).alias(name) for name, outcomes in _OUTCOMES.items()),
        "error",
        f.lit(True).alias("is_work"),
        "item_id",
    )
    dead_letters = within("dead_letters", "failed_at").select(
        "queue",
        f.col("consumer_group").alias("group"),
        "partition_id",
        "seq",
        "error",
        f.unix_micros("failed_at").alias("failed_at"),
    )
    return Sources(messages, deliveries.unionByName(attempts), dead_letters)


_COUNTS = ("completed", "failed", "released", "dead", "expired")

#: How the outcomes of an attempt count among answers. Cancelled is nobody's failure.
_OUTCOMES = {
    "completed": ("completed",),
    "failed": ("failed", "retry"),
    "released": ("cancelled",),
    "dead": ("dead",),
    "expired": ("expired",),
}


def _counts_as(outcomes: tuple[str, ...]) -> Column:
    from pyspark.sql import functions as f

    return f.col("outcome").isin(*outcomes).cast("long")


def _day(micros: int) -> date:
    return datetime.fromtimestamp(micros // SECOND, UTC).date()
