"""Writes DataFrames and streams into queues, each row once.

`batch_writer` and `stream_writer` are what the data source hands to Spark. Options and columns
are checked, and the broker is asked, before the first task starts. Spark calls `write` in its
workers, once a task, and again when a task or a whole batch is repeated: the transaction ids of
`transaction_ids` make the repeat harmless.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from monarq.errors import InvalidRequestError
from monarq.model import QueueKind
from monarq.spark.sink_columns import SinkColumns, resolve_columns
from monarq.spark.sink_copies import missing_copies, push_missing
from monarq.spark.sink_http import Written
from monarq.spark.sink_options import SinkOptions, read_sink_options
from monarq.spark.sink_writer import write_rows
from monarq.spark.transaction_ids import Digests

if TYPE_CHECKING:
    from pyarrow import RecordBatch

#: What Spark tells a task about the query it belongs to.
_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    return BatchWriter(*_prepared(options, schema, overwrite))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    return StreamWriter(*_prepared(options, schema, overwrite))


def _prepared(
    given: Mapping[str, str], schema: StructType, overwrite: bool
) -> tuple[SinkOptions, SinkColumns]:
    if overwrite:
        raise InvalidRequestError(
            "a queue cannot be overwritten: write with mode append (a stream: append or update)"
        )
    options = read_sink_options(given)
    kind = target_kind(options)
    return options, resolve_columns(schema, options, is_work=kind is QueueKind.WORK)


def target_kind(options: SinkOptions) -> QueueKind | None:
    """Of the queue that all rows go to, if there is one and it exists. Whoever cannot be reached is
    told here, before the job."""
    name = options.queue if options.queue is not None else "-"
    if options.is_http:
        from monarq.spark.sink_http import queue_kind

        kind = queue_kind(options.url, options.token, name, options.retry_seconds)
    else:
        from monarq.spark.sink_store import sink_store

        kind = sink_store(options.url, options.encryption_keys).queue_kind(name)
    return kind if options.queue is not None else None


@dataclass
class Committed(WriterCommitMessage):
    """What a task tells the driver."""

    rows: int
    duplicates: int
    digests: Digests


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        # In a stream's foreachBatch, too, equal rows of two batches are two messages.
        scope = _stream_scope(self._options) or self._options.write_id
        return _write(self._options, self._columns, iterator, scope)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _finish(self._options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        scope = _stream_scope(self._options)
        if scope is None:
            raise InvalidRequestError("Spark does not say which batch of which stream this is")
        return _write(self._options, self._columns, iterator, scope)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _finish(self._options, messages)


def _write(
    options: SinkOptions, columns: SinkColumns, batches: Iterator[RecordBatch], scope: str
) -> Committed:
    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    written, digests = write_rows(options, columns, batches, scope=scope, task=task)
    return Committed(written.rows, written.duplicates, digests)


def _finish(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    tasks = [message for message in messages if isinstance(message, Committed)]
    copies = push_missing(options, missing_copies([task.digests for task in tasks]))
    if options.report_file is not None:
        # A copy that was pushed only now was a duplicate to its task.
        duplicates = sum(task.duplicates for task in tasks) - copies
        written = Written(sum(task.rows for task in tasks), duplicates)
        Path(options.report_file).write_bytes(msgspec.json.encode(written))


def _stream_scope(options: SinkOptions) -> str | None:
    """What tells a batch of a stream from all others; None outside of streams."""
    context = TaskContext.get()
    if context is None:
        return None
    query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    if query is None or batch is None:
        return None
    return f"{query}/{batch}/{options.write_id}"
