"""One analysis from beginning to end: read, measure, judge, write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


#: Up to so many rows, compiling a query takes longer than running it uncompiled.
_SMALL_ROWS = 200_000
_UNCOMPILED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


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
    with _suited_to(spark, selection.rows):
        measured = measure(read_sources(spark, selection), progress, exact_rows=exact_rows)
    found = empty if measured is None else assemble(measured, empty)
    analysis = judge(found, last_before(lake, run, queues))
    report = render(analysis)
    return Result(analysis, report, keep(lake, analysis, report))


@contextmanager
def _suited_to(spark: SparkSession, rows: int) -> Iterator[None]:
    """The session is its owner's: it gets back what it had."""
    before = {name: spark.conf.get(name) for name in _UNCOMPILED}
    if rows <= _SMALL_ROWS:
        for name, value in _UNCOMPILED.items():
            spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, known in before.items():
            if known is not None:
                spark.conf.set(name, known)
