"""Batch reads: a table as it is when the query is planned.

Planning runs in a worker on the driver's machine, reading in Spark's tasks; what goes from one
to the other is pickled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from monarq.spark.bounds import Earliest, Latest
from monarq.spark.filters import Narrowing
from monarq.spark.options import ReadOptions
from monarq.spark.plain_errors import plain, plain_rows
from monarq.spark.ranges import (
    Window,
    check_kept,
    check_named,
    chosen_queues,
    ending_positions,
    lanes_of,
    opened,
    plan_window,
    ranges_between,
    starting_positions,
    window_of,
)
from monarq.spark.reading import columns_to_fetch, shaped
from monarq.spark.schemas import Shape
from monarq.spark.splits import Split, cut


class MessagesReader(DataSourceReader):
    """Messages of ordered queues, by ranges of seq."""

    def __init__(self, options: ReadOptions, shape: Shape) -> None:
        self._options = options
        self._shape = shape
        self._window = window_of(options.starting, options.ending)
        self._narrowing = Narrowing()

    @plain
    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        access = opened(options)
        queues = chosen_queues(options, self._shape.table, access) or []
        window = self._narrowing.window(self._window)
        lanes = lanes_of(access, queues, options.partitions, plan_window(options.starting, window))
        check_named("startingOffsets", options.starting, lanes)
        check_named("endingOffsets", options.ending, lanes)
        ranges = ranges_between(
            starting_positions(options.starting, lanes),
            ending_positions(options.ending, lanes),
            lanes,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        return cut(
            self._narrowing.applied(ranges),
            min_splits=options.min_splits,
            messages_per_split=options.messages_per_split,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        window = self._narrowing.window(self._window)
        return read_split(partition, self._options, self._shape, window)


class FilteredMessagesReader(MessagesReader):
    """For sessions that push filters down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        for condition in filters:
            self._narrowing.add(condition)
        return filters


@plain_rows
def read_split(
    partition: InputPartition, options: ReadOptions, shape: Shape, window: Window
) -> Iterator[pa.RecordBatch]:
    """The messages of a split. Fails if retention was quicker, unless that is allowed."""
    if not isinstance(partition, Split):
        # Where nothing is planned, Spark makes up an empty partition of its own.
        return
    access = opened(options)
    read = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal read
        for batch in access.messages(partition.ranges, columns_to_fetch(shape, window)):
            read += batch.num_rows
            yield batch

    yield from shaped(counted(), shape, window)
    if options.fail_on_data_loss and read < partition.expected:
        check_kept(partition.ranges, access)


@dataclass
class LogSplit(InputPartition):
    """Rows of a log behind one position (None: from the beginning) up to another."""

    after: str | None
    until: str


class LogReader(DataSourceReader):
    """Deliveries, dead letters, attempts, metrics: up to where the log ends now."""

    def __init__(self, options: ReadOptions, shape: Shape) -> None:
        self._options = options
        self._shape = shape
        self._window = window_of(options.starting, options.ending)

    @plain
    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        if isinstance(options.starting, Latest) or isinstance(options.ending, Earliest):
            return []
        return [LogSplit(None, opened(options).log_end(self._shape.table))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_log(partition, self._options, self._shape, self._window)


@plain_rows
def read_log(
    partition: InputPartition, options: ReadOptions, shape: Shape, window: Window
) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, LogSplit):
        return
    access = opened(options)
    batches = access.log_rows(
        shape.table,
        partition.after,
        partition.until,
        columns_to_fetch(shape, window),
        queues=chosen_queues(options, shape.table, access),
    )
    yield from shaped(batches, shape, window)


class StateReader(DataSourceReader):
    """Items, queues, groups: as they are when they are read."""

    def __init__(self, options: ReadOptions, shape: Shape) -> None:
        self._options = options
        self._shape = shape

    @plain
    def partitions(self) -> Sequence[InputPartition]:
        chosen_queues(self._options, self._shape.table, opened(self._options))
        return [InputPartition(None)]

    @plain_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        access = opened(self._options)
        queues = chosen_queues(self._options, self._shape.table, access)
        batches = access.rows(self._shape.table, self._shape.fetched, queues=queues)
        return shaped(batches, self._shape, Window())
