"""Turns what is fetched into the batches that Spark asked for. Runs in Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from monarq.spark.parsing import PayloadParser
from monarq.spark.ranges import Window
from monarq.spark.schemas import CORRUPT, PAYLOAD, Shape
from monarq.tables import get_table


def columns_to_fetch(shape: Shape, window: Window) -> list[str]:
    """Those of the shape, and the one that the window is about."""
    columns = list(shape.fetched)
    time = get_table(shape.table).time_column
    if window and time is not None and time not in columns:
        columns.append(time)
    return columns


def shaped(
    batches: Iterable[pa.RecordBatch], shape: Shape, window: Window
) -> Iterator[pa.RecordBatch]:
    """The rows within the window, with exactly the schema of the shape."""
    parser = None if shape.payload is None else PayloadParser(shape.payload)
    for fetched in batches:
        batch = _within(fetched, shape, window)
        if batch.num_rows == 0:
            continue
        columns: dict[str, Any] = {name: batch.column(name) for name in shape.fetched}
        if parser is not None:
            columns[PAYLOAD], columns[CORRUPT] = parser.parse(columns[PAYLOAD])
        yield pa.RecordBatch.from_arrays(
            [columns[name] for name in shape.schema.names], schema=shape.schema
        )


def _within(batch: pa.RecordBatch, shape: Shape, window: Window) -> pa.RecordBatch:
    if not window:
        return batch
    times = batch.column(get_table(shape.table).time_column)
    for bound, compare in (
        (window.since, pc.greater_equal),
        (window.until, pc.less),
    ):
        if bound is not None:
            kept = compare(times, pa.scalar(bound, times.type))
            batch, times = batch.filter(kept), times.filter(kept)
    return batch
