"""Makes the DataFrames of a pipeline: its sources, then its steps, each a view by its name.

Nothing is read or written yet: Spark only finds out whether all of it fits together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from monarq.errors import InvalidRequestError
from monarq.spark.failures import as_monarq_error
from monarq.spark.lake import read as read_lake
from monarq.spark.lake.layout import TABLES
from monarq.spark.pipelines.user.definition import (
    OWN_TABLES,
    Pipeline,
    Source,
    Step,
    plain_options,
    source_options,
)
from monarq.spark.pipelines.user.python_steps import call_function

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def make_tables(
    spark: SparkSession, pipeline: Pipeline, place: Mapping[str, str]
) -> dict[str, DataFrame]:
    """By name, in their order. `place`: the data source's options where none are given."""
    tables: dict[str, DataFrame] = {}
    for name, source in pipeline.sources.items():
        with named_place(pipeline, f"sources.{name}"):
            tables[name] = _source(spark, source, place)
            tables[name].createOrReplaceTempView(name)
    for number, step in enumerate(pipeline.steps):
        with named_place(pipeline, f"steps[{number}] ({step.name})"):
            tables[step.name] = _step(spark, step, tables)
            tables[step.name].createOrReplaceTempView(step.name)
    return tables


@contextmanager
def named_place(pipeline: Pipeline, place: str) -> Iterator[None]:
    """What fails inside is told with the place in the file that it is about."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a function of the user's may raise anything
        ours = as_monarq_error(error)
        text = str(ours) if ours is not None else f"{type(error).__name__}: {error}"
        kind = InvalidRequestError if ours is None else type(ours)
        raise _placed(kind, f"{pipeline.path.name}: {place}: {text}") from None


def _placed(kind: type[Exception], text: str) -> Exception:
    try:
        return kind(text)
    except TypeError:
        return InvalidRequestError(text)


def _source(spark: SparkSession, source: Source, place: Mapping[str, str]) -> DataFrame:
    if source.lake is not None:
        assert source.table is not None
        if source.table in TABLES:
            return read_lake(spark, source.lake, source.table)
        return spark.read.parquet(f"{source.lake}/{OWN_TABLES}/{source.table}")
    if source.queue is not None:
        options = source_options(source, place)
        if source.stream:
            return spark.readStream.format("monarq").options(**options).load()
        return spark.read.format("monarq").options(**options).load()
    assert source.files is not None
    reader = spark.readStream if source.stream else spark.read
    reader = reader.format(source.format).options(**plain_options(source.options))
    if source.schema is not None:
        reader = reader.schema(source.schema)
    return reader.load(source.files)


def _step(spark: SparkSession, step: Step, tables: Mapping[str, DataFrame]) -> DataFrame:
    if step.python is not None:
        return call_function(spark, step.python, tables)
    assert step.sql is not None
    return spark.sql(step.sql.rstrip().rstrip(";"))
