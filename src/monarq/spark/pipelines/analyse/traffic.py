"""What was pushed: per queue and bucket, and per partition, in one pass over the messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from monarq.spark.pipelines.analyse.figures import Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row


@dataclass(frozen=True)
class Traffic:
    by_bucket: list[Row]
    """queue, bucket, messages, bytes"""
    by_queue: list[Row]
    """queue, messages, bytes, partitions, first_at, last_at"""
    partitions: DataFrame
    """queue, partition, partition_id, messages, bytes, first_seq, last_seq. Kept in memory until
    `release`."""
    held: DataFrame

    def release(self) -> None:
        self.held.unpersist()


def bucket_of(micros: str, window: Window) -> Column:
    """The number of the bucket that a time falls into."""
    from pyspark.sql import functions as f

    return f.floor((f.col(micros) - f.lit(window.start)) / f.lit(window.bucket)).cast("int")


def measure_traffic(messages: DataFrame, window: Window) -> Traffic:
    from pyspark.sql import functions as f

    queue, bucket = f.col("queue"), f.col("bucket")
    partition, partition_id = f.col("partition"), f.col("partition_id")
    held = (
        messages.withColumn("bucket", bucket_of("created", window))
        .groupingSets(
            [(queue, bucket), (queue, partition, partition_id)],
            queue,
            bucket,
            partition,
            partition_id,
        )
        .agg(
            f.grouping("bucket").alias("is_partition"),
            f.count("*").alias("messages"),
            f.sum("bytes").alias("bytes"),
            f.min("seq").alias("first_seq"),
            f.max("seq").alias("last_seq"),
            f.min("created").alias("first_at"),
            f.max("created").alias("last_at"),
        )
        .persist()
    )
    partitions = held.where("is_partition = 1").drop("bucket", "is_partition")
    by_queue = partitions.groupBy("queue").agg(
        f.sum("messages").alias("messages"),
        f.sum("bytes").alias("bytes"),
        f.count("*").alias("partitions"),
        f.min("first_at").alias("first_at"),
        f.max("last_at").alias("last_at"),
    )
    by_bucket = held.where("is_partition = 0").select("queue", "bucket", "messages", "bytes")
    return Traffic(by_bucket.collect(), by_queue.collect(), partitions, held)
