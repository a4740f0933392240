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
from monarq.errors import NotFoundError
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


def read_sources(spark: SparkSession, lake: Lake, scope: Scope) -> Sources:
    """What was committed at one moment."""
    state = lake.state()
    queues = sorted({file.queue for file in state.files.values() if scope.has(file.queue)})
    if scope.queues and not queues:
        raise NotFoundError(f"the lake has no queue {' or '.join(scope.queues)}")

    def table(name: str) -> DataFrame:
        return read(
            spark,
            lake,
            name,
            queues=queues,
            first_day=None if scope.start is None else _day(scope.start),
            last_day=None if scope.end is None else _day(scope.end),
            state=state,
        )

    return prepare({name: table(name) for name in TABLES}, scope)


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
