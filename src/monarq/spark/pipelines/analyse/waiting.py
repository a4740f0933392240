"""How long messages waited for their first delivery to each group.

Of items nothing is known: the lake has the attempts at them, not when they were pushed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from monarq.spark.pipelines.analyse.figures import Window
from monarq.spark.pipelines.analyse.sources import Sources
from monarq.spark.pipelines.analyse.spreads import Percentiler
from monarq.spark.pipelines.analyse.traffic import bucket_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


@dataclass(frozen=True)
class Waiting:
    """Each row has the spread of `waiting`."""

    overall: list[Row]
    by_queue: list[Row]
    by_group: list[Row]
    by_bucket: list[Row]
    """queue, group, bucket (of the delivery), …"""


def measure_waiting(sources: Sources, window: Window, percentiler: Percentiler) -> Waiting:
    from pyspark.sql import functions as f

    rows = _first_deliveries(sources).select(
        "queue",
        "group",
        bucket_of("leased", window).alias("bucket"),
        # Brokers' clocks may differ by a little where the store does not give the time.
        f.greatest(f.col("leased") - f.col("created"), f.lit(0)).alias("waiting"),
    )
    queue, group, bucket = f.col("queue"), f.col("group"), f.col("bucket")
    found = (
        rows.groupingSets(
            [(), (queue,), (queue, group), (queue, group, bucket)], queue, group, bucket
        )
        .agg(f.grouping_id().alias("level"), *percentiler.aggregates("waiting", None))
        .collect()
    )
    return Waiting(*([row for row in found if row.level == level] for level in _LEVELS))


# A bit for each of queue, group, bucket that is not grouped by.
_LEVELS = (0b111, 0b011, 0b001, 0b000)


def _first_deliveries(sources: Sources) -> DataFrame:
    """A row for each message and group that was given it.

    A row of the log names the first and last message that it answers. Leases run without a gap
    from the cursor on, so that the earliest row over a message is its first delivery, also if
    that row answered only some of those in its range.
    """
    from pyspark.sql import functions as f

    delivered = (
        sources.answers.where("not is_work")
        .select(
            "group", "partition_id", "leased", f.expr("explode(sequence(first_seq, last_seq)) seq")
        )
        .groupBy("group", "partition_id", "seq")
        .agg(f.min("leased").alias("leased"))
    )
    pushed = sources.messages.select("queue", "partition_id", "seq", "created")
    return delivered.join(pushed, ["partition_id", "seq"]).select(
        "queue", "group", "created", "leased"
    )
