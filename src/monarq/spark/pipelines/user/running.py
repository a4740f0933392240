"""Runs a pipeline of the user's: all its sinks, in a batch or until it is stopped."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from monarq.spark.pipelines.user.definition import Pipeline
from monarq.spark.pipelines.user.tables import make_tables, named_place
from monarq.spark.pipelines.user.writing import start_stream, write_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_SECONDS = 0.5
_BEGINNING_SECONDS = 0.05
_TRIES = 4
#: Spark gives the process of a source ten seconds to start, also on a machine that has no time.
_TOO_BUSY = "failed to connect back"
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}


def run_batch(
    spark: SparkSession,
    pipeline: Pipeline,
    place: Mapping[str, str],
    told: Callable[[str, int], None],
) -> dict[str, int]:
    """Rows that went to each sink. `told` hears of each as it is done."""
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit

    tables = make_tables(spark, pipeline, place)
    rows: dict[str, int] = {}
    for name, sink in pipeline.sinks.items():
        with named_place(pipeline, f"sinks.{name}"):
            seen = Observation(f"sink {name}")
            frame = tables[sink.of].observe(seen, count(lit(1)).alias("rows"))
            write_batch(frame, sink, place)
            rows[name] = int(seen.get["rows"])
            told(name, rows[name])
    return rows


def run_stream(
    spark: SparkSession,
    pipeline: Pipeline,
    place: Mapping[str, str],
    stop: threading.Event,
    told: Callable[[str, int], None],
    *,
    once: bool,
) -> dict[str, int]:
    """Until `stop` is set, or with `once` until all that is there now is done. The rows read for
    each sink by this run."""
    tables = make_tables(spark, pipeline, place)
    counts = {name: _Counted() for name in pipeline.sinks}
    # What ends by itself goes one after the other: every query has processes of its own.
    groups = [[name] for name in pipeline.sinks] if once else [list(pipeline.sinks)]
    for names in groups:
        if stop.is_set():
            break
        queries: dict[str, StreamingQuery] = {}
        try:
            for name in names:
                with named_place(pipeline, f"sinks.{name}"):
                    frame = tables[pipeline.sinks[name].of]
                    queries[name] = _started(frame, name, pipeline, place, once)
            _follow(queries, pipeline, stop, counts, told)
        finally:
            for query in queries.values():
                query.stop()
    return {name: counted.rows for name, counted in counts.items()}


def _follow(
    queries: Mapping[str, StreamingQuery],
    pipeline: Pipeline,
    stop: threading.Event,
    counts: Mapping[str, _Counted],
    told: Callable[[str, int], None],
) -> None:
    """Until all have ended, one has failed, or `stop` is set."""
    is_over = False
    while not is_over:
        is_over = stop.wait(_LOOK_SECONDS) or not any(one.isActive for one in queries.values())
        for name, query in queries.items():
            with named_place(pipeline, f"sinks.{name}"):
                if query.exception() is not None:
                    query.awaitTermination()
            if counts[name].look(query):
                told(name, counts[name].rows)


def _started(
    frame: DataFrame, name: str, pipeline: Pipeline, place: Mapping[str, str], once: bool
) -> StreamingQuery:
    trigger: dict[str, Any] = {"availableNow": True}
    if not once:
        trigger = {"processingTime": _interval(pipeline.every or "0s")}
    assert pipeline.checkpoint is not None
    sink = pipeline.sinks[name]
    for _ in range(_TRIES - 1):
        query = start_stream(frame, name, sink, place, pipeline.checkpoint, trigger)
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(_BEGINNING_SECONDS)
        if _TOO_BUSY not in str(query.exception()):
            return query
    return start_stream(frame, name, sink, place, pipeline.checkpoint, trigger)


def _interval(text: str) -> str:
    number, unit = re.match(r"([0-9]+) ?(\w+)", text).groups()  # type: ignore[union-attr]
    return f"{number} {_UNITS.get(unit, unit)}"


class _Counted:
    """Rows that a query has read, by what it says of each batch."""

    def __init__(self) -> None:
        self.rows = 0
        self._last = -1

    def look(self, query: StreamingQuery) -> bool:
        """Whether there is more than at the last look."""
        new = [each for each in query.recentProgress if each["batchId"] > self._last]
        if new:
            self._last = new[-1]["batchId"]
        read = sum(each["numInputRows"] for each in new)
        self.rows += read
        return bool(read)
