"""Streams: messages by positions in their partitions, logs by their own positions.

Runs in one worker on the driver's machine for as long as the query does. The checkpoint is the
truth of how far the query has come: nothing is kept in the store, so `commit` has nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from monarq.spark.access import Access
from monarq.spark.admission import admitted, reachable, without_gone
from monarq.spark.batch import LogSplit, read_log, read_split
from monarq.spark.bounds import Latest
from monarq.spark.options import ReadOptions
from monarq.spark.plain_errors import plain
from monarq.spark.polling import Pace
from monarq.spark.positions import (
    Positions,
    read_log_offset,
    read_offset,
    write_log_offset,
    write_offset,
)
from monarq.spark.ranges import (
    Lane,
    check_named,
    chosen_queues,
    lanes_of,
    opened,
    plan_window,
    ranges_between,
    starting_positions,
    window_of,
)
from monarq.spark.reading import columns_to_fetch
from monarq.spark.schemas import Shape
from monarq.spark.splits import cut


class MessageStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """New messages of ordered queues; new partitions, and new queues of a pattern, join in."""

    def __init__(self, options: ReadOptions, shape: Shape) -> None:
        self._options = options
        self._shape = shape
        self._window = window_of(options.starting, options.ending)
        self._pace = Pace(options.poll_interval_ms / 1000)
        self._lanes: dict[str, list[Lane]] | None = None
        self._target: Positions | None = None
        self._turn = 0
        self._pushed: dict[str, int] = {}
        self._idle_since: dict[str, int] | None = None
        """What had been pushed when a look at the partitions found nothing new."""

    @plain
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        starting = self._options.starting
        access = opened(self._options)
        queues = chosen_queues(self._options, self._shape.table, access) or []
        window = plan_window(starting, self._window)
        lanes = lanes_of(access, queues, self._options.partitions, window)
        check_named("startingOffsets", starting, lanes)
        return write_offset(starting_positions(starting, lanes))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.max_messages_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    @plain
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = reachable({}, self._look())

    @plain
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        positions = read_offset(start)
        if self._target is None:
            self._pace.wait()
            if not self._has_news():
                return start
            self._look()
        assert self._lanes is not None
        if self._options.partitions is None:
            positions = without_gone(positions, self._lanes)
        end = reachable(positions, self._lanes, self._target)
        if isinstance(limit, ReadMaxRows):
            end, self._turn = admitted(positions, end, limit.max_rows, self._turn)
        if not _is_further(positions, end):
            # The very same offset: Spark compares texts, and another one would be a batch.
            self._idle_since = self._pushed
            return start
        self._idle_since = None
        self._pace.hurry()
        return write_offset(end)

    @plain
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._lanes is None else write_offset(reachable({}, self._lanes))

    @plain
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = read_offset(start), read_offset(end)
        if self._lanes is None or not _covers(self._lanes, first, last):
            self._look()
        assert self._lanes is not None
        ranges = ranges_between(
            first, last, self._lanes, fail_on_data_loss=self._options.fail_on_data_loss
        )
        return cut(
            ranges,
            min_splits=self._options.min_splits,
            messages_per_split=self._options.messages_per_split,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_split(partition, self._options, self._shape, self._window)

    def _has_news(self) -> bool:
        """Whether to look at the partitions: not if nothing was pushed since that was in vain."""
        with self._pace.looking():
            before, self._pushed = self._idle_since, self._counters()
        return before is None or before != self._pushed or self._pace.is_look_due()

    def _counters(self) -> dict[str, int]:
        rows = opened(self._options).rows(
            "queues",
            ["queue", "pushed"],
            queues=None if self._options.queues is None else list(self._options.queues),
        )
        return {row["queue"]: row["pushed"] for batch in rows for row in batch.to_pylist()}

    def _look(self) -> dict[str, list[Lane]]:
        with self._pace.looking(thoroughly=True):
            access = opened(self._options)
            queues = self._options.queues
            if queues is None or self._lanes is None:
                queues = tuple(chosen_queues(self._options, self._shape.table, access) or ())
            self._lanes = lanes_of(access, queues, self._options.partitions)
        return self._lanes

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy of the reader: they need neither the plan nor the pace.
        return self.__dict__ | {"_lanes": None, "_target": None}


class LogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """New rows of the deliveries, dead letters, attempts or metrics."""

    def __init__(self, options: ReadOptions, shape: Shape) -> None:
        self._options = options
        self._shape = shape
        self._window = window_of(options.starting, options.ending)
        self._pace = Pace(options.poll_interval_ms / 1000)
        self._target: str | None = None

    @plain
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        chosen_queues(self._options, self._shape.table, self._access())
        position = None
        if isinstance(self._options.starting, Latest):
            position = self._access().log_end(self._shape.table)
        return write_log_offset(self._shape.table, position)

    @plain
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._access().log_end(self._shape.table)

    @plain
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        table = self._shape.table
        after = read_log_offset(start, table)
        until = self._target
        if until is None:
            self._pace.wait()
            with self._pace.looking():
                until = self._access().log_end(table)
        if (after is not None and until <= after) or not self._has_rows(after, until):
            return start
        self._pace.hurry()
        return write_log_offset(table, until)

    @plain
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        after = read_log_offset(start, self._shape.table)
        until = read_log_offset(end, self._shape.table)
        return [] if until is None or until == after else [LogSplit(after, until)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_log(partition, self._options, self._shape, self._window)

    def _has_rows(self, after: str | None, until: str) -> bool:
        """Positions may move on where no row was added; that is no reason for a batch."""
        rows = self._access().log_rows(
            self._shape.table,
            after,
            until,
            columns_to_fetch(self._shape, self._window)[:1],
            queues=chosen_queues(self._options, self._shape.table, self._access()),
        )
        return any(batch.num_rows for batch in rows)

    def _access(self) -> Access:
        return opened(self._options)


def _is_further(start: Positions, end: Positions) -> bool:
    return any(
        last > start.get(queue, {}).get(partition_id, 0)
        for queue, positions in end.items()
        for partition_id, last in positions.items()
    )


def _covers(lanes: dict[str, list[Lane]], start: Positions, end: Positions) -> bool:
    """Whether these are new enough for what lies between two offsets."""
    for queue, positions in end.items():
        known = {lane.partition_id: lane.last_seq for lane in lanes.get(queue, ())}
        begun = start.get(queue, {})
        for partition_id, last in positions.items():
            if last > begun.get(partition_id, 0) and known.get(partition_id, -1) < last:
                return False
    return True
