"""Has Spark measure everything, and keeps what it found as rows. Decides how finely time is cut
and whether percentiles can be exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from monarq.spark.pipelines.analyse.answering import Answering, measure_answers
from monarq.spark.pipelines.analyse.backlog import Backlog, measure_backlog
from monarq.spark.pipelines.analyse.costs import measure_jobs
from monarq.spark.pipelines.analyse.failures import Failures, measure_failures
from monarq.spark.pipelines.analyse.figures import Window
from monarq.spark.pipelines.analyse.grid import make_window
from monarq.spark.pipelines.analyse.sources import Sources
from monarq.spark.pipelines.analyse.spreads import EXACT_ROWS, Percentiler
from monarq.spark.pipelines.analyse.traffic import Traffic, measure_traffic
from monarq.spark.pipelines.analyse.waiting import Waiting, measure_waiting

if TYPE_CHECKING:
    from pyspark.sql import Row

#: What is being measured, how many steps are done, and how many there are.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Measured:
    window: Window
    percentiler: Percentiler
    traffic: Traffic
    answering: Answering
    waiting: Waiting
    backlog: Backlog
    failures: Failures
    jobs: list[Row]


@dataclass(frozen=True)
class _Extent:
    rows: int
    first: int | None
    last: int | None


def measure(
    sources: Sources, progress: Progress, *, exact_rows: int = EXACT_ROWS
) -> Measured | None:
    """None if there is nothing to look at."""
    steps = ("times", "pushes", "answers", "waiting", "backlog", "errors", "jobs")

    def begin(step: str) -> None:
        progress(step, steps.index(step), len(steps))

    begin("times")
    extent = _extent(sources)
    if extent.first is None or extent.last is None:
        return None
    window = make_window(extent.first, extent.last)
    percentiler = Percentiler(exact=extent.rows <= exact_rows)
    begin("pushes")
    traffic = measure_traffic(sources.messages, window)
    try:
        begin("answers")
        answering = measure_answers(sources.answers, window, percentiler)
        begin("waiting")
        waiting = measure_waiting(sources, window, percentiler)
        begin("backlog")
        backlog = measure_backlog(sources, traffic.partitions)
    finally:
        traffic.release()
    begin("errors")
    failures = measure_failures(sources)
    begin("jobs")
    jobs = measure_jobs(sources, percentiler)
    return Measured(window, percentiler, traffic, answering, waiting, backlog, failures, jobs)


def _extent(sources: Sources) -> _Extent:
    """How much there is, and from when to when."""
    from pyspark.sql import functions as f

    times = (
        sources.messages.select(f.col("created").alias("at"))
        .union(sources.answers.select("ended"))
        .union(sources.dead_letters.select("failed_at"))
    )
    found = times.agg(
        f.count("*").alias("rows"), f.min("at").alias("first"), f.max("at").alias("last")
    ).collect()[0]
    return _Extent(found["rows"], found["first"], found["last"])
