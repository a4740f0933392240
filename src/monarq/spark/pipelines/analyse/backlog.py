"""What groups have not been given yet, by partition: how much, how old, and how uneven.

A group has been given what lies at or before the last message that it was ever delivered (or
that died unseen) in a partition. A partition that it was never given anything from waits for it
whole: a group begins at the beginning unless it asked otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from monarq.spark.pipelines.analyse.sources import Sources

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

#: Of each queue, those with the most messages; of each group, those with the most before it.
MOST_PARTITIONS = 20


@dataclass(frozen=True)
class Backlog:
    by_group: list[Row]
    """queue, group, backlog, backlog_partitions"""
    oldest: dict[tuple[str, str], int]
    """By queue and group: when the oldest message that waits was pushed."""
    partitions: list[Row]
    """queue, group (null, if nobody consumes the queue), partition, partition_id, messages, bytes,
    backlog"""


def measure_backlog(sources: Sources, partitions: DataFrame) -> Backlog:
    """`partitions` as the traffic has them."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    behind = _behind(sources, partitions).persist()
    try:
        by_group = (
            behind.where("group is not null")
            .groupBy("queue", "group")
            .agg(
                f.sum("backlog").alias("backlog"),
                f.count(f.when(f.col("backlog") > 0, True)).alias("backlog_partitions"),
            )
            .collect()
        )
        of_group = Window.partitionBy("queue", "group")
        largest = (
            behind.withColumn(
                "message_rank",
                f.row_number().over(of_group.orderBy(f.desc("messages"), "partition")),
            )
            .withColumn(
                "backlog_rank",
                f.row_number().over(of_group.orderBy(f.desc("backlog"), "partition")),
            )
            .where(
                (f.col("message_rank") <= MOST_PARTITIONS)
                | ((f.col("backlog_rank") <= MOST_PARTITIONS) & (f.col("backlog") > 0))
            )
            .collect()
        )
        some_wait = any(row.backlog for row in by_group)
        return Backlog(by_group, _oldest(sources, behind) if some_wait else {}, largest)
    finally:
        behind.unpersist()


def _behind(sources: Sources, partitions: DataFrame) -> DataFrame:
    """A row for each partition and each group of its queue, with how much waits there."""
    from pyspark.sql import functions as f

    delivered = sources.answers.where("not is_work").select(
        "queue", "group", "partition_id", f.col("last_seq").alias("seq")
    )
    buried = sources.dead_letters.select("queue", "group", "partition_id", "seq")
    reached = (
        delivered.unionByName(buried)
        .groupBy("queue", "group", "partition_id")
        .agg(f.max("seq").alias("reached"))
    )
    groups = f.broadcast(delivered.select("queue", "group").distinct())
    next_seq = f.greatest(f.coalesce(f.col("reached") + 1, f.lit(0)), "first_seq")
    waiting = f.greatest(f.col("last_seq") - f.col("next_seq") + 1, f.lit(0))
    return (
        partitions.join(groups, "queue", "left")
        .join(reached, ["queue", "group", "partition_id"], "left")
        .withColumn("next_seq", next_seq)
        # Messages that were deleted leave a hole; without a group, there is nobody to wait for.
        .withColumn(
            "backlog",
            f.when(f.col("group").isNull(), f.lit(0)).otherwise(
                f.least(waiting, f.col("messages"))
            ),
        )
        .select(
            "queue",
            "group",
            "partition",
            "partition_id",
            "messages",
            "bytes",
            "next_seq",
            "backlog",
        )
    )


def _oldest(sources: Sources, behind: DataFrame) -> dict[tuple[str, str], int]:
    from pyspark.sql import functions as f

    waits = behind.where("backlog > 0").select("queue", "group", "partition_id", "next_seq")
    pushed = sources.messages.select("partition_id", "seq", "created")
    found = (
        # Not only the next one: it may have been deleted.
        pushed.join(waits, "partition_id")
        .where("seq >= next_seq")
        .groupBy("queue", "group")
        .agg(f.min("created").alias("oldest"))
    )
    return {(row.queue, row.group): row.oldest for row in found.collect()}
