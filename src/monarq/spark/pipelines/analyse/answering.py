"""What became of deliveries and attempts, and how long they took: in one pass per queue, group,
bucket and consumer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from monarq.spark.pipelines.analyse.figures import Answers, Window
from monarq.spark.pipelines.analyse.spreads import Percentiler
from monarq.spark.pipelines.analyse.traffic import bucket_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

#: As the stores write it: of messages that died with their lease, nothing else tells.
LEASE_RAN_OUT = "the lease expired without an answer"

COUNTS = ("completed", "failed", "released", "dead", "expired")

#: Consumers are as many as there ever were processes: those with the most to do are shown.
MOST_CONSUMERS = 200


@dataclass(frozen=True)
class Answering:
    """Each row has the counts and the spread of `processing`."""

    overall: list[Row]
    by_queue: list[Row]
    """queue, is_work, …"""
    by_group: list[Row]
    """queue, group, is_work, …"""
    by_bucket: list[Row]
    """queue, group, bucket, …"""
    by_consumer: list[Row]
    """queue, group, consumer, …"""
    consumers: dict[tuple[str, str], int]
    """How many a queue's group had."""


def measure_answers(answers: DataFrame, window: Window, percentiler: Percentiler) -> Answering:
    from pyspark.sql import functions as f

    rows = answers.select(
        "queue",
        "group",
        "is_work",
        f.coalesce("consumer", f.lit("")).alias("consumer"),
        bucket_of("ended", window).alias("bucket"),
        *COUNTS,
        # A lease that ran out says how long leases are, not how long work takes.
        f.when((f.col("expired") > 0) | f.col("error").eqNullSafe(LEASE_RAN_OUT), f.lit(0))
        .otherwise(f.col("completed") + f.col("failed") + f.col("dead"))
        .alias("weight"),
        f.greatest(f.col("ended") - f.col("leased"), f.lit(0)).alias("processing"),
    )
    queue, group, consumer, bucket = map(f.col, ("queue", "group", "consumer", "bucket"))
    found = (
        percentiler.repeated(rows, "weight", COUNTS)
        .groupingSets(
            [(), (queue,), (queue, group), (queue, group, bucket), (queue, group, consumer)],
            queue,
            group,
            bucket,
            consumer,
        )
        .agg(
            f.grouping_id().alias("level"),
            *(f.sum(name).alias(name) for name in COUNTS),
            f.max("is_work").alias("is_work"),
            *percentiler.aggregates("processing", "weight"),
        )
        .persist()
    )
    try:
        consumers = found.where((f.col("level") == _CONSUMER) & (f.col("consumer") != ""))
        counted = consumers.groupBy("queue", "group").agg(f.count("*").alias("consumers"))
        busiest = consumers.orderBy(f.desc("processing_count"), "queue", "group", "consumer")
        small = found.where(f.col("level") != _CONSUMER).collect()
        return Answering(
            overall=[row for row in small if row.level == _ALL],
            by_queue=[row for row in small if row.level == _QUEUE],
            by_group=[row for row in small if row.level == _GROUP],
            by_bucket=[row for row in small if row.level == _BUCKET],
            by_consumer=busiest.limit(MOST_CONSUMERS).collect(),
            consumers={(row.queue, row.group): row.consumers for row in counted.collect()},
        )
    finally:
        found.unpersist()


# What `grouping_id` says: a bit for each of queue, group, bucket, consumer that is not grouped by.
_ALL, _QUEUE, _GROUP, _BUCKET, _CONSUMER = 0b1111, 0b0111, 0b0011, 0b0001, 0b0010


def answers_of(row: Row) -> Answers:
    return Answers(**{name: row[name] or 0 for name in COUNTS})
