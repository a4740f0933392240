"""What went wrong: the dead letters, and the commonest errors of each queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from monarq.spark.pipelines.analyse.error_kinds import normalised_column
from monarq.spark.pipelines.analyse.figures import ErrorSource
from monarq.spark.pipelines.analyse.sources import Sources

if TYPE_CHECKING:
    from pyspark.sql import Row

#: Of each queue and source.
MOST_ERRORS = 20
_EXAMPLE_CHARACTERS = 300


@dataclass(frozen=True)
class Failures:
    errors: list[Row]
    """queue, source, error, count, total (of the queue and source), example, first_at, last_at"""
    dead_letters: list[Row]
    """queue, group, dead_letters"""


def measure_failures(sources: Sources) -> Failures:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    buried = sources.dead_letters.select(
        "queue",
        f.lit(str(ErrorSource.DEAD_LETTER)).alias("source"),
        "error",
        f.lit(1).cast("long").alias("times"),
        f.col("failed_at").alias("at"),
    )
    failed = sources.answers.where("failed + dead + expired > 0").select(
        "queue",
        f.when(f.col("is_work"), str(ErrorSource.ATTEMPT))
        .otherwise(str(ErrorSource.DELIVERY))
        .alias("source"),
        "error",
        (f.col("failed") + f.col("dead") + f.col("expired")).alias("times"),
        f.col("ended").alias("at"),
    )
    of_queue = Window.partitionBy("queue", "source")
    errors = (
        buried.unionByName(failed)
        .withColumn("kind", normalised_column(f.col("error")))
        .groupBy("queue", "source", f.col("kind").alias("error"))
        .agg(
            f.sum("times").alias("count"),
            f.min_by("error", "at").alias("example"),
            f.min("at").alias("first_at"),
            f.max("at").alias("last_at"),
        )
        .withColumn("total", f.sum("count").over(of_queue))
        .withColumn("rank", f.row_number().over(of_queue.orderBy(f.desc("count"), "error")))
        .where(f.col("rank") <= MOST_ERRORS)
        .withColumn(
            "example", f.substring(f.coalesce("example", f.lit("")), 1, _EXAMPLE_CHARACTERS)
        )
    )
    letters = sources.dead_letters.groupBy("queue", "group").agg(f.count("*").alias("dead_letters"))
    return Failures(errors.collect(), letters.collect())
