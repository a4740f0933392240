"""Puts rows together into pushes: bodies of requests to a broker, or pushes to a store.

A body is cut from one long text of all rows, so no row is touched by itself, and is not copied.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from monarq.model import Push, PushItem
from monarq.spark.json_texts import json_strings
from monarq.spark.sink_rows import Rows

#: Well below what a broker takes in one request.
_MOST_BYTES = 8 << 20
_MICROS = pa.timestamp("us", "UTC")
#: A body as it is sent: pieces, so that the long one is not copied once more.
Body = tuple[bytes | memoryview, ...]


class PushRequest(Struct, frozen=True):
    """A push to a broker."""

    count: int
    body: Body
    places: frozenset[str]
    """The partitions that it goes to."""

    def chained(self, mark: str, after: str | None) -> Body:
        """The body with a mark, and with the mark of the push that must be stored before."""
        head, *rest = self.body
        links = {"mark": mark} if after is None else {"mark": mark, "after": after}
        return b"".join((msgspec.json.encode(links)[:-1], b",", head[1:])), *rest


def requests(rows: Rows, most: int) -> Iterator[PushRequest]:
    """Pushes of at most so many rows."""
    head, text, places = _head(rows), _items(rows), _places(rows)
    offsets = memoryview(text.buffers()[1]).cast("i")[text.offset :]
    data = memoryview(text.buffers()[2])
    start, end = 0, len(rows)
    while start < end:
        stop = min(start + most, end)
        if offsets[stop] - offsets[start] > _MOST_BYTES:
            stop = bisect.bisect_right(offsets, offsets[start] + _MOST_BYTES, start + 1, stop) - 1
            stop = max(stop, start + 1)
        # Every item ends with a comma, but the last of a body.
        body = (head, data[offsets[start] : offsets[stop] - 1], b"]}")
        yield PushRequest(stop - start, body, frozenset(places[start:stop].unique().to_pylist()))
        start = stop


def _places(rows: Rows) -> pa.Array:
    """Queue and partition of each row in one text."""
    if isinstance(rows.queue, str) and isinstance(rows.partition, str):
        return pa.repeat(f"{rows.queue}\n{rows.partition}", len(rows))
    return pc.binary_join_element_wise(rows.queue, rows.partition, "\n")


def _head(rows: Rows) -> bytes:
    """What is before the items: the names that all of them share are said once."""
    shared = {
        name: value
        for name, value in (("queue", rows.queue), ("partition", rows.partition))
        if isinstance(value, str)
    }
    return msgspec.json.encode({"answer": "counts", **shared})[:-1] + b',"items":['


def _items(rows: Rows) -> pa.Array:
    parts: list[str | pa.Array] = ['{"transactionId":', json_strings(rows.transaction_id)]
    for name, value in (("queue", rows.queue), ("partition", rows.partition)):
        if not isinstance(value, str):
            parts += [f',"{name}":', json_strings(value)]
    parts += [',"payload":', rows.payload]
    for name, column in _optional(rows):
        # Fields that are null are left out.
        parts.append(pc.fill_null(pc.binary_join_element_wise(f',"{name}":', column, ""), ""))
    return pc.binary_join_element_wise(*parts, "},", "")


def _optional(rows: Rows) -> Iterator[tuple[str, pa.Array]]:
    if rows.trace_id is not None:
        yield "traceId", json_strings(rows.trace_id)
    if rows.priority is not None:
        yield "priority", rows.priority.cast(pa.string())
    if rows.run_at is not None:
        times = pc.strftime(rows.run_at.cast(_MICROS), format='"%Y-%m-%dT%H:%M:%SZ"')
        yield "runAt", times
    if rows.max_attempts is not None:
        yield "maxAttempts", rows.max_attempts.cast(pa.string())


def pushes(rows: Rows, most: int) -> Iterator[Push]:
    """The same for a store."""
    items = [
        PushItem(
            queue,
            payload,
            partition,
            transaction_id,
            trace_id,
            priority=priority,
            run_at=run_at,
            max_attempts=max_attempts,
        )
        for (
            queue,
            payload,
            partition,
            transaction_id,
            trace_id,
            priority,
            run_at,
            max_attempts,
        ) in zip(
            _listed(rows.queue, len(rows)),
            rows.payload.cast(pa.binary()).to_pylist(),
            _listed(rows.partition, len(rows)),
            _listed(rows.transaction_id, len(rows)),
            _listed(rows.trace_id, len(rows)),
            _listed(rows.priority, len(rows)),
            _listed(rows.run_at, len(rows)),
            _listed(rows.max_attempts, len(rows)),
            strict=True,
        )
    ]
    for start in range(0, len(items), most):
        yield Push(items[start : start + most])


def _listed(column: str | pa.Array | None, count: int) -> list[Any]:
    if column is None or isinstance(column, str):
        return [column] * count
    values: list[Any] = column.to_pylist()
    return values
