"""What the attempts at jobs cost their workers: time, and how much of it was for nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monarq.spark.pipelines.analyse.sources import Sources
from monarq.spark.pipelines.analyse.spreads import Percentiler

if TYPE_CHECKING:
    from pyspark.sql import Row


def measure_jobs(sources: Sources, percentiler: Percentiler) -> list[Row]:
    """queue, items, attempts, completed, seconds, wasted, and the spread of `duration`."""
    from pyspark.sql import functions as f

    attempts = sources.answers.where("is_work").withColumn(
        "duration", f.greatest(f.col("ended") - f.col("leased"), f.lit(0))
    )
    took = f.col("duration") / 1e6
    return (
        attempts.groupBy("queue")
        .agg(
            f.countDistinct("item_id").alias("items"),
            f.count("*").alias("attempts"),
            f.sum("completed").alias("completed"),
            f.sum(took).alias("seconds"),
            f.sum(f.when(f.col("completed") == 0, took).otherwise(0.0)).alias("wasted"),
            *percentiler.aggregates("duration", None),
        )
        .collect()
    )
