"""Says what a pipeline would do, without doing it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from monarq.spark.pipelines.user.definition import Pipeline, Sink, Source
from monarq.spark.pipelines.user.tables import make_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def explain(spark: SparkSession, pipeline: Pipeline, place: Mapping[str, str]) -> dict[str, Any]:
    """Where everything comes from and goes to, with its columns and Spark's plan."""
    tables = make_tables(spark, pipeline, place)
    return {
        "name": pipeline.name,
        "mode": "stream" if pipeline.is_stream else "batch",
        "sources": {
            name: {"reads": source_text(source), "columns": columns_of(tables[name])}
            for name, source in pipeline.sources.items()
        },
        "steps": {step.name: {"columns": columns_of(tables[step.name])} for step in pipeline.steps},
        "sinks": {
            name: {"from": sink.of, "writes": sink_text(sink), "plan": _plan(tables[sink.of])}
            for name, sink in pipeline.sinks.items()
        },
    }


def explained_text(explained: Mapping[str, Any]) -> str:
    lines = [f"{explained['name']}: a {explained['mode']} pipeline"]
    for name, source in explained["sources"].items():
        lines += [f"\nsource {name}: {source['reads']}", f"  columns: {source['columns']}"]
    for name, step in explained["steps"].items():
        lines += [f"\nstep {name}", f"  columns: {step['columns']}"]
    for name, sink in explained["sinks"].items():
        lines += [f"\nsink {name}: {sink['from']} to {sink['writes']}"]
        lines += [f"  {line}" for line in sink["plan"].splitlines()]
    return "\n".join(lines)


def columns_of(frame: DataFrame) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema)


def source_text(source: Source) -> str:
    how = ", followed" if source.stream else ""
    if source.queue is not None:
        return f"{source.table or 'messages'} of queue {source.queue}{how}"
    if source.lake is not None:
        return f"table {source.table} of the lake {source.lake}"
    return f"{source.format} files {source.files}{how}"


def sink_text(sink: Sink) -> str:
    if sink.queue is not None:
        return f"queue {sink.queue}"
    if sink.queue_column is not None:
        return f"the queues that column {sink.queue_column} names"
    if sink.files is not None:
        return f"{sink.format} files {sink.files}"
    if sink.lake is not None:
        return f"table {sink.table} of the lake {sink.lake}"
    return f"table {sink.table}"


def _plan(frame: DataFrame) -> str:
    execution: Any = frame._jdf.queryExecution()
    # A stream's plan is made for each batch, not before.
    plan = execution.analyzed() if frame.isStreaming else execution.optimizedPlan()
    return str(plan.toString()).rstrip()
