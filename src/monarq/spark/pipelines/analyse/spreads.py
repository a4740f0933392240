"""Percentiles in Spark: exact while the values are few, approximate with a stated accuracy else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from monarq.spark.pipelines.analyse.figures import Spread

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PERCENTILES = (0.5, 0.95, 0.99)

#: Up to so many rows, percentiles are exact. They keep every distinct value in memory.
EXACT_ROWS = 500_000

#: Of `approx_percentile`: the rank is right within one part in so many.
ACCURACY = 10_000


@dataclass(frozen=True)
class Percentiler:
    exact: bool

    @property
    def in_words(self) -> str:
        if self.exact:
            return "exact, linear between neighbouring values"
        return f"approximate: the rank is right within {100 / ACCURACY:g} %"

    def repeated(self, rows: DataFrame, weight: str, sums: Sequence[str]) -> DataFrame:
        """Rows to aggregate: as they are, or, as the approximation knows no weights, each as often
        as it weighs. What is summed up stays with the first of them."""
        from pyspark.sql import functions as f

        if self.exact:
            return rows
        times = f.expr(f"sequence(1, greatest(cast({weight} as int), 1))")
        return (
            rows.withColumn("_turn", f.explode(times))
            .withColumn(weight, f.when(f.col(weight) > 0, f.lit(1)).otherwise(f.lit(0)))
            .withColumns({name: f.when(f.col("_turn") == 1, f.col(name)) for name in sums})
        )

    def aggregates(self, value: str, weight: str | None) -> list[Column]:
        """Columns that `spread_of` reads: in microseconds, over values that are not null."""
        from pyspark.sql import functions as f

        counted = f.when(f.col(weight) > 0, f.col(value)) if weight else f.col(value)
        points = f.array(*map(f.lit, PERCENTILES))
        if not self.exact:
            found = f.percentile_approx(counted, points, f.lit(ACCURACY))
        elif weight:
            found = f.percentile(counted, points, f.col(weight))
        else:
            found = f.percentile(counted, points)
        number = f.sum(weight) if weight else f.count(counted)
        return [
            found.alias(f"{value}_percentiles"),
            f.max(counted).alias(f"{value}_most"),
            number.alias(f"{value}_count"),
        ]


def spread_of(row: Any, value: str) -> Spread | None:
    found = row[f"{value}_percentiles"]
    if not row[f"{value}_count"] or found is None:
        return None
    p50, p95, p99 = (point / 1e6 for point in found)
    return Spread(
        count=row[f"{value}_count"], p50=p50, p95=p95, p99=p99, most=row[f"{value}_most"] / 1e6
    )
