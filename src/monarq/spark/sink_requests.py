"""Puts rows together into pushes: bodies of requests to a broker, or pushes to a store.

A body is cut from long texts of all rows, so no row is touched by itself, and is not copied.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from functools import partial
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
#: A broker takes 2 MiB as columns, with what is around them.
_MOST_COLUMN_BYTES = (2 << 20) - (8 << 10)
_LARGE_PAYLOAD = 1 << 20
_ITEMS_PATH = "/api/v1/push"
_COLUMNS_PATH = "/api/v1/push/columns"
_MICROS = pa.timestamp("us", "UTC")
#: A body as it is sent: pieces, so that the long one is not copied once more.
Body = tuple[bytes | memoryview, ...]


class PushRequest(Struct, frozen=True):
    """A push to a broker."""

    count: int
    path: str
    body: Body
    places: frozenset[str]
    """The partitions that it goes to."""

    def chained(self, mark: str, after: str | None) -> Body:
        """The body with a mark, and with the mark of the push that must be stored before."""
        head, *rest = self.body
        links = {"mark": mark} if after is None else {"mark": mark, "after": after}
        return b"".join((msgspec.json.encode(links)[:-1], b",", head[1:])), *rest


class _Listed:
    """The elements of a JSON list as one text, from which any of them can be cut."""

    def __init__(self, elements: pa.Array) -> None:
        """Each ends with a comma."""
        self._offsets = memoryview(elements.buffers()[1]).cast("i")[elements.offset :]
        self._data = memoryview(elements.buffers()[2])

    def size(self, start: int, stop: int) -> int:
        return self._offsets[stop] - self._offsets[start]

    def cut(self, start: int, stop: int) -> memoryview:
        return self._data[self._offsets[start] : self._offsets[stop] - 1]


def requests(rows: Rows, most: int) -> Iterator[PushRequest]:
    """Pushes of at most so many rows."""
    queue, partition = rows.queue, rows.partition
    if not isinstance(queue, str) or not isinstance(partition, str) or rows.has_options:
        return _item_requests(rows, most)
    if pc.max(pc.binary_length(rows.payload)).as_py() > _LARGE_PAYLOAD:
        return _item_requests(rows, most)
    return _column_requests(rows, queue, partition, most)


def _column_requests(rows: Rows, queue: str, partition: str, most: int) -> Iterator[PushRequest]:
    """Of rows for one partition that have no more than a payload and an id."""
    payloads = _Listed(pc.binary_join_element_wise(rows.payload, "", ","))
    ids = _Listed(pc.binary_join_element_wise(json_strings(rows.transaction_id), "", ","))
    names = msgspec.json.encode({"queue": queue, "partition": partition})
    head, middle = names[:-1] + b',"payloads":[', b'],"transactionIds":['
    places = frozenset([f"{queue}\n{partition}"])

    def size(start: int, stop: int) -> int:
        return payloads.size(start, stop) + ids.size(start, stop)

    for start, stop in _parts(len(rows), most, size, _MOST_COLUMN_BYTES):
        body = (head, payloads.cut(start, stop), middle, ids.cut(start, stop), b"]}")
        yield PushRequest(stop - start, _COLUMNS_PATH, body, places)


def _item_requests(rows: Rows, most: int) -> Iterator[PushRequest]:
    head, items, places = _head(rows), _Listed(_items(rows)), _places(rows)
    for start, stop in _parts(len(rows), most, items.size, _MOST_BYTES):
        body = (head, items.cut(start, stop), b"]}")
        named = frozenset(places[start:stop].unique().to_pylist())
        yield PushRequest(stop - start, _ITEMS_PATH, body, named)


def _parts(
    count: int, most: int, size: Callable[[int, int], int], most_bytes: int
) -> Iterator[tuple[int, int]]:
    """From and to which row the bodies go: each has at most so many rows and bytes, or one row."""
    start = 0
    while start < count:
        stop = min(start + most, count)
        if size(start, stop) > most_bytes:
            ends = range(start + 1, stop)
            stop = start + max(1, bisect.bisect_right(ends, most_bytes, key=partial(size, start)))
        yield start, stop
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
