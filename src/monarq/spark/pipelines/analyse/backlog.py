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

#: Of each queue: those with the most messages, and those with the most before a group.
MOST_PARTITIONS = 20


@dataclass(frozen=True)
class Backlog:
    by_group: list[Row]
    """queue, group, backlog, backlog_partitions, oldest"""
    partitions: list[Row]
    """queue, partition, messages, bytes, backlog, backlog_group"""


def measure_backlog(sources: Sources, partitions: DataFrame) -> Backlog:
    """`partitions` as the traffic has them."""
    from pyspark.sql import Window
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
    groups = delivered.select("queue", "group").distinct()
    behind = (
        partitions.join(groups, "queue")
        .join(reached, ["queue", "group", "partition_id"], "left")
        .withColumn("next", f.greatest(f.coalesce(f.col("reached") + 1, f.lit(0)), "first_seq"))
        .withColumn(
            "backlog",
            # Messages that were deleted leave a hole.
            f.least(f.greatest(f.col("last_seq") - f.col("next") + 1, f.lit(0)), f.col("messages")),
        )
        .persist()
    )
    pushed = sources.messages.select("partition_id", "seq", "created")
    try:
        oldest = (
            behind.where("backlog > 0")
            .select("queue", "group", "partition_id", f.col("next").alias("seq"))
            .join(pushed, ["partition_id", "seq"])
            .groupBy("queue", "group")
            .agg(f.min("created").alias("oldest"))
        )
        by_group = (
            behind.groupBy("queue", "group")
            .agg(
                f.sum("backlog").alias("backlog"),
                f.count(f.when(f.col("backlog") > 0, True)).alias("backlog_partitions"),
            )
            .join(oldest, ["queue", "group"], "left")
        )
        worst = (
            behind.groupBy("queue", "partition_id")
            .agg(f.max(f.struct("backlog", "group")).alias("worst"))
            .select("queue", "partition_id", "worst.backlog", "worst.group")
        )
        by_messages = Window.partitionBy("queue").orderBy(f.desc("messages"), "partition")
        by_backlog = Window.partitionBy("queue").orderBy(f.desc("backlog"), "partition")
        largest = (
            partitions.join(worst, ["queue", "partition_id"], "left")
            .withColumn("backlog", f.coalesce("backlog", f.lit(0)))
            .withColumn("message_rank", f.row_number().over(by_messages))
            .withColumn("backlog_rank", f.row_number().over(by_backlog))
            .where(
                (f.col("message_rank") <= MOST_PARTITIONS)
                | ((f.col("backlog_rank") <= MOST_PARTITIONS) & (f.col("backlog") > 0))
            )
            .select(
                "queue",
                "partition",
                "messages",
                "bytes",
                "backlog",
                f.when(f.col("backlog") > 0, f.col("group")).alias("backlog_group"),
            )
        )
        return Backlog(by_group.collect(), largest.collect())
    finally:
        behind.unpersist()
