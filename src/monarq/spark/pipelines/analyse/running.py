"""One analysis from beginning to end: read, measure, judge, write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from monarq.spark.pipelines.analyse.assembling import assemble
from monarq.spark.pipelines.analyse.figures import Analysis
from monarq.spark.pipelines.analyse.judging import judge
from monarq.spark.pipelines.analyse.keeping import REPORT_FILE, keep, last_before
from monarq.spark.pipelines.analyse.measuring import Progress, measure
from monarq.spark.pipelines.analyse.report.page import render
from monarq.spark.pipelines.analyse.sources import Selection, read_sources
from monarq.spark.pipelines.analyse.spreads import EXACT_ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Result:
    analysis: Analysis
    report: str
    folder: Path

    @property
    def report_file(self) -> Path:
        return self.folder / REPORT_FILE


def analyse(
    spark: SparkSession,
    selection: Selection,
    *,
    run: str,
    now: int,
    progress: Progress,
    exact_rows: int = EXACT_ROWS,
) -> Result:
    """`run` names it, and sorts after all earlier ones; `now` is when it was made."""
    lake, queues = selection.lake, sorted(selection.scope.queues)
    empty = Analysis(
        id=run,
        lake=str(lake.root),
        scope=queues,
        generated_at=now,
        window=None,
        percentiles="none, as there is nothing to measure",
    )
    measured = measure(read_sources(spark, selection), progress, exact_rows=exact_rows)
    found = empty if measured is None else assemble(measured, empty)
    analysis = judge(found, last_before(lake, run, queues))
    report = render(analysis)
    return Result(analysis, report, keep(lake, analysis, report))
