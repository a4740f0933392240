"""Writes what a pipeline has made: as a batch, or one batch of a stream after the other.

Exactly once, wherever it is killed: queues by transaction ids; files, tables and the lake by a
folder of its own for every batch of a stream, which is there whole or not at all and which a
repeated batch finds there. Batches are known by their numbers, which a new checkpoint counts from 0
again: so a folder or table belongs to one query, and another is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from monarq.errors import ConflictError
from monarq.spark.lake import Lake
from monarq.spark.pipelines.user.definition import OWN_TABLES, Sink, plain_options, sink_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_BATCH = "batch"
_STAGING = "_staging"
#: A folder with one in it, whose name is the query's id: it is there whole or not at all.
_OWNER = "_query"
_OWNER_PROPERTY = "monarq.query"
#: What Spark tells a batch of the query it belongs to. The id lives in the checkpoint.
_QUERY = "sql.streaming.queryId"


def write_batch(frame: DataFrame, sink: Sink, place: Mapping[str, str]) -> None:
    if sink.queue is not None or sink.queue_column is not None:
        options = sink_options(sink, place)
        frame.write.format("monarq").options(**options).mode("append").save()
        return
    writer = frame.write.mode(sink.mode).format(sink.format)
    writer = writer.options(**plain_options(sink.options)).partitionBy(*sink.partition_by)
    folder = folder_of(sink)
    if folder is None:
        assert sink.table is not None
        writer.saveAsTable(sink.table)
    else:
        writer.save(folder)


def folder_of(sink: Sink) -> str | None:
    """Where its files go; None for a table, whose place Spark knows."""
    if sink.lake is not None:
        return f"{Lake.open(sink.lake).root}/{OWN_TABLES}/{sink.table}"
    return sink.files


def start_stream(
    frame: DataFrame,
    name: str,
    sink: Sink,
    place: Mapping[str, str],
    checkpoint: str,
    trigger: Mapping[str, Any],
) -> StreamingQuery:
    writer = frame.writeStream.outputMode(sink.output).queryName(name)
    writer = writer.option("checkpointLocation", f"{checkpoint}/{name}").trigger(**trigger)
    if sink.queue is not None or sink.queue_column is not None:
        return writer.format("monarq").options(**sink_options(sink, place)).start()
    folder = folder_of(sink)
    if folder is None:
        assert sink.table is not None
        return writer.foreachBatch(_IntoTable(sink.table, sink)).start()
    return writer.foreachBatch(_IntoFolder(folder, sink)).start()


class _IntoFolder:
    """Every batch is a folder `batch=<number>`, put in place by one rename."""

    def __init__(self, folder: str, sink: Sink) -> None:
        self._folder = folder
        self._sink = sink

    def __call__(self, frame: DataFrame, number: int) -> None:
        files = _Files(frame.sparkSession, self._folder)
        query = _query_of(frame)
        owners = files.names(_OWNER)
        _check_owner(self._folder, owners[0] if owners else query, query)
        if not owners:
            files.make(f"{_OWNER}/{query}")
        final = f"{_BATCH}={number}"
        if files.exists(final):
            return  # this batch was killed after its rename
        staged = f"{_STAGING}/{number}"
        files.remove(staged)
        writer = frame.write.format(self._sink.format).partitionBy(*self._sink.partition_by)
        writer.options(**plain_options(self._sink.options)).save(f"{self._folder}/{staged}")
        files.move(staged, final)


class _IntoTable:
    """Every batch is a partition `batch` of the table, which a repeat writes anew."""

    def __init__(self, table: str, sink: Sink) -> None:
        self._table = table
        self._sink = sink

    def __call__(self, frame: DataFrame, number: int) -> None:
        from pyspark.sql.functions import lit

        spark = frame.sparkSession
        others = [name for name in frame.columns if name not in self._sink.partition_by]
        ordered = frame.select(*others, *self._sink.partition_by)
        numbered = ordered.withColumn(_BATCH, lit(number).cast("bigint"))
        if not spark.catalog.tableExists(self._table):
            writer = numbered.limit(0).write.format(self._sink.format)
            writer.partitionBy(*self._sink.partition_by, _BATCH).saveAsTable(self._table)
        self._own(spark, _query_of(frame))
        # The session is the query's own. Otherwise all of the table would be replaced.
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        numbered.write.insertInto(self._table, overwrite=True)

    def _own(self, spark: SparkSession, query: str) -> None:
        shown = spark.sql(f"SHOW TBLPROPERTIES {self._table}").collect()
        owner = next((row.value for row in shown if row.key == _OWNER_PROPERTY), None)
        _check_owner(self._table, owner or query, query)
        if owner is None:
            owned = f"SET TBLPROPERTIES ('{_OWNER_PROPERTY}' = '{query}')"
            spark.sql(f"ALTER TABLE {self._table} {owned}")


def _query_of(frame: DataFrame) -> str:
    query = frame.sparkSession.sparkContext.getLocalProperty(_QUERY)
    if query is None:
        raise ConflictError("Spark does not say which stream this is")
    return query


def _check_owner(place: str, owner: str, query: str) -> None:
    if owner != query:
        raise ConflictError(f"{place} belongs to another checkpoint: use another folder or table")


class _Files:
    """A folder on any file system that Spark knows."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        configuration = spark.sparkContext._jsc.hadoopConfiguration()
        self._path = jvm.org.apache.hadoop.fs.Path
        self._root = self._path(folder)
        self._system = self._root.getFileSystem(configuration)

    def exists(self, name: str) -> bool:
        return bool(self._system.exists(self._path(self._root, name)))

    def names(self, folder: str) -> list[str]:
        if not self.exists(folder):
            return []
        found = self._system.listStatus(self._path(self._root, folder))
        return [one.getPath().getName() for one in found]

    def make(self, folder: str) -> None:
        self._system.mkdirs(self._path(self._root, folder))

    def remove(self, name: str) -> None:
        self._system.delete(self._path(self._root, name), True)

    def move(self, name: str, to: str) -> None:
        if not self._system.rename(self._path(self._root, name), self._path(self._root, to)):
            raise ConflictError(f"{self._root.toString()}/{to} could not be put in place")
