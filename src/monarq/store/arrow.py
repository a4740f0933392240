"""What stores export as Arrow record batches: no message is looped over.

Needs pyarrow (the extra `arrow`); nothing else in the store does.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from monarq.model import PartitionRange
from monarq.store.exported import ExportedSegment
from monarq.tables import ColumnType, arrow_schema, get_table

SCHEMA = arrow_schema("messages")
PLAN_SCHEMA = pa.schema(
    [
        pa.field("partition_id", pa.int64(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),
        pa.field("first_seq", pa.int64(), nullable=False),
        pa.field("last_seq", pa.int64(), nullable=False),
    ]
)
_ZERO = bytes(4)


def plan_batch(ranges: Sequence[PartitionRange]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(list(map(attrgetter(field.name), ranges)), field.type) for field in PLAN_SCHEMA],
        schema=PLAN_SCHEMA,
    )


def message_batch(segments: Sequence[ExportedSegment], columns: Sequence[str]) -> pa.RecordBatch:
    """The messages of these segments, one a row, without the deleted ones."""
    schema = arrow_schema("messages", columns)
    builder = _Builder(segments)
    arrays = [getattr(builder, name)() for name in columns]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    kept = builder.kept()
    return batch if kept is None else batch.filter(kept)


class _Builder:
    """Each column from what the segments have in common: a value a segment, spread over its
    messages. All as vectors, so that many small segments cost little more than a large one."""

    def __init__(self, segments: Sequence[ExportedSegment]) -> None:
        self._segments = segments
        self._counts = [segment.end - segment.start for segment in segments]
        self.count = sum(self._counts)
        self._which: pa.Array | None = None
        self._seqs: pa.Array | None = None
        self._ids: pa.Array | None = None

    # --- the columns -------------------------------------------------------------------

    def queue(self) -> pa.Array:
        return self._spread([segment.queue for segment in self._segments], pa.string())

    def partition(self) -> pa.Array:
        return self._spread([segment.partition for segment in self._segments], pa.string())

    def created_at(self) -> pa.Array:
        times = [segment.created_at for segment in self._segments]
        return self._spread(times, SCHEMA.field("created_at").type)

    def seq(self) -> pa.Array:
        if self._seqs is None:
            self._seqs = _longs(
                array(
                    "q",
                    chain.from_iterable(
                        range(segment.first_seq + segment.start, segment.first_seq + segment.end)
                        for segment in self._segments
                    ),
                )
            )
        return self._seqs

    def message_id(self) -> pa.Array:
        if self._ids is None:
            partitions = self._spread(
                [str(segment.partition_id) for segment in self._segments], pa.string()
            )
            self._ids = pc.binary_join_element_wise(partitions, self.seq().cast(pa.string()), "-")
        return self._ids

    def transaction_id(self) -> pa.Array:
        given = self._texts([segment.transaction_ids for segment in self._segments])
        return self.message_id() if given is None else pc.coalesce(given, self.message_id())

    def trace_id(self) -> pa.Array:
        return self._texts_or_nulls([segment.trace_ids for segment in self._segments])

    def producer(self) -> pa.Array:
        return self._texts_or_nulls([segment.producers for segment in self._segments])

    def payload(self) -> pa.Array:
        pieces: list[bytes] = []
        ends: list[bytes] = []
        bases: list[int] = []
        total = 0
        for data, offsets, begin, end, start, stop in self._pieces():
            pieces.append(data if begin == 0 and end == len(data) else data[begin:end])
            ends.append(offsets[4 * start + 4 : 4 * stop + 4])
            bases.append(total - begin)
            total += end - begin
        # The end of each payload in its own segment, moved to where the segment is now.
        within = _ints(b"".join(ends), self.count)
        moved = pc.add(within, self._spread(bases, pa.int32())) if len(bases) > 1 else within
        if len(bases) == 1 and bases[0]:
            moved = pc.add(within, pa.scalar(bases[0], pa.int32()))
        bounds = pa.concat_arrays([_ints(_ZERO, 1), moved])
        return pa.Array.from_buffers(
            pa.string(), self.count, [None, bounds.buffers()[1], pa.py_buffer(b"".join(pieces))]
        )

    def kept(self) -> pa.Array | None:
        """Which messages are not deleted; None if all are there."""
        masks: list[pa.Array] = []
        for segment, count in zip(self._segments, self._counts, strict=True):
            if segment.offsets is None:
                masks.append(pa.repeat(pa.scalar(True), count))
                continue
            bounds = _ints(segment.offsets[4 * segment.start : 4 * segment.end + 4], count + 1)
            masks.append(pc.not_equal(bounds.slice(1), bounds.slice(0, count)))
        mask = pa.concat_arrays(masks) if masks else pa.array([], pa.bool_())
        return None if mask.true_count == self.count else mask

    # --- spreading ---------------------------------------------------------------------

    def _pieces(self) -> Iterator[tuple[bytes, bytes, int, int, int, int]]:
        for segment in self._segments:
            assert segment.data is not None
            assert segment.offsets is not None
            offsets, start, end = segment.offsets, segment.start, segment.end
            first = int.from_bytes(offsets[4 * start : 4 * start + 4], "little")
            last = int.from_bytes(offsets[4 * end : 4 * end + 4], "little")
            yield segment.data, offsets, first, last, start, end

    def _spread(self, values: list[Any], kind: pa.DataType) -> pa.Array:
        """A segment's value for each of its messages."""
        first = values[0] if values else None
        if values.count(first) == len(values):
            return pa.repeat(pa.scalar(first, kind), self.count)
        if self._which is None:
            which = chain.from_iterable(map(repeat, range(len(self._counts)), self._counts))
            self._which = pa.Array.from_buffers(
                pa.int32(), self.count, [None, pa.py_buffer(array("i", which))]
            )
        return pc.take(pa.array(values, kind), self._which, boundscheck=False)

    def _texts(self, lists: list[list[str | None] | None]) -> pa.Array | None:
        if not any(lists):
            return None
        cut: Iterable[Iterable[str | None]] = (
            repeat(None, count)
            if values is None
            else values
            if count == len(values)
            else values[segment.start : segment.end]
            for values, count, segment in zip(lists, self._counts, self._segments, strict=True)
        )
        return pa.array(chain.from_iterable(cut), pa.string(), size=self.count)

    def _texts_or_nulls(self, lists: list[list[str | None] | None]) -> pa.Array:
        texts = self._texts(lists)
        return pa.nulls(self.count, pa.string()) if texts is None else texts


def row_batch(table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Rows of any other table, as stores keep their values."""
    schema = arrow_schema(table, columns)
    values = zip(*rows, strict=True) if rows else repeat((), len(columns))
    return pa.RecordBatch.from_arrays(
        [
            _column(get_table(table).column(name).type, schema.field(name).type, list(column))
            for name, column in zip(columns, values, strict=False)
        ],
        schema=schema,
    )


def _column(kind: ColumnType, to: pa.DataType, values: list[Any]) -> pa.Array:
    if kind is ColumnType.TEXT and any(isinstance(value, bytes) for value in values):
        return pa.array(values, pa.binary()).cast(pa.string())
    if kind is ColumnType.BOOL:
        return pa.array(map(bool, values), to, size=len(values))
    return pa.array(values, to)


def _longs(values: array[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _ints(stored: bytes, count: int) -> pa.Array:
    """Little-endian int32 numbers."""
    if sys.byteorder == "big":
        numbers = array("i", stored)
        numbers.byteswap()
        stored = numbers.tobytes()
    return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(stored)])
