"""Turns batches of a DataFrame's rows into what is pushed: columns of text, ready to be put
together. Works on whole columns; the rows themselves are not looked at one by one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, structs

from monarq.errors import InvalidRequestError
from monarq.model import DEFAULT_PARTITION
from monarq.spark.json_texts import json_object, json_values
from monarq.spark.sink_columns import SinkColumns
from monarq.spark.sink_options import SinkOptions
from monarq.spark.transaction_ids import (
    HashedIds,
    Identities,
    identity_ids,
    positional_ids,
)

#: Rows of more bytes are cut, so that no column of text outgrows 32-bit offsets.
_MOST_BYTES = 128 << 20
#: Not all that text functions take for space.
_JSON_SPACE = " \t\n\r"
_values = msgspec.json.Decoder(msgspec.Raw)


class Rows(Struct, frozen=True):
    """Rows to push, all to partitions of one lane. A name that all rows share is text."""

    lane: int
    queue: str | pa.Array
    partition: str | pa.Array
    transaction_id: pa.Array
    payload: pa.Array
    """JSON text."""
    trace_id: pa.Array | None
    priority: pa.Array | None
    run_at: pa.Array | None
    """Microseconds since the epoch."""
    max_attempts: pa.Array | None

    def __len__(self) -> int:
        return len(self.payload)

    def of_one_place(self, lane: int) -> Rows:
        """The same, if all go to one partition."""
        queue, partition = (
            name if isinstance(name, str) else name[0].as_py()
            for name in (self.queue, self.partition)
        )
        return structs.replace(self, lane=lane, queue=queue, partition=partition)

    @property
    def has_options(self) -> bool:
        """Whether there is more to say of a row than its payload and its id."""
        options = (self.trace_id, self.priority, self.run_at, self.max_attempts)
        return any(column is not None for column in options)

    def take(self, lane: int, indices: pa.Array) -> Rows:
        def taken(column: str | pa.Array | None) -> str | pa.Array | None:
            return column.take(indices) if isinstance(column, pa.Array) else column

        values = [taken(getattr(self, name)) for name in self.__struct_fields__[1:]]
        return Rows(lane, *values)


class RowReader:
    """Reads one task's batches. Which lane a row takes follows from its queue and partition, so
    that rows of one partition stay in their order."""

    def __init__(
        self, options: SinkOptions, columns: SinkColumns, *, lanes: int, scope: str, task: int
    ) -> None:
        self._options = options
        self._columns = columns
        self._lanes = lanes
        self._scope = scope
        self._task = task
        self._count = 0
        self._identities = Identities()
        self.hashed = HashedIds(scope)

    def read(self, batch: pa.RecordBatch) -> Iterator[Rows]:
        if batch.nbytes > _MOST_BYTES and batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from self.read(batch.slice(0, half))
            yield from self.read(batch.slice(half))
        elif batch.num_rows:
            yield from self._by_lane(self._rows(batch))

    def _rows(self, batch: pa.RecordBatch) -> Rows:
        columns, options = self._columns, self._options
        queue = options.queue if options.queue is not None else _text(batch, columns.queue)
        partition = (
            _text(batch, columns.partition)
            if columns.partition
            else options.partition or DEFAULT_PARTITION
        )
        payload = self._payload(batch)
        trace_id = _text(batch, columns.trace_id, nulls=True) if columns.trace_id else None
        rest = [
            _whole(batch, columns.priority),
            _micros(batch, columns.run_at),
            _whole(batch, columns.max_attempts),
        ]
        if self._columns.id_rule == "hash":
            others = [one.cast(pa.string()) for one in (trace_id, *rest) if one is not None]
            ids = self.hashed.ids(queue, partition, payload, others)
        else:
            ids = self._ids(batch)
        self._count += batch.num_rows
        return Rows(0, queue, partition, ids, payload, trace_id, *rest)

    def _payload(self, batch: pa.RecordBatch) -> pa.Array:
        name = self._columns.payload
        if not name:
            fields = list(self._columns.fields)
            return json_object(fields, [batch.column(field) for field in fields])
        column = batch.column(name)
        if column.null_count:
            raise InvalidRequestError("a row has no payload: the column payload is null")
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            return checked_json(column.cast(pa.string()))
        return json_values(column)

    def _ids(self, batch: pa.RecordBatch) -> pa.Array:
        match self._columns.id_rule:
            case "column":
                return _text(batch, self._columns.transaction_id)
            case "identity":
                ids = identity_ids([_plain(batch, name) for name in self._columns.identity])
                self._identities.check(ids)
                return ids
        return positional_ids(self._scope, self._task, self._count, batch.num_rows)

    def _by_lane(self, rows: Rows) -> Iterator[Rows]:
        """Rows of one partition together, in their order."""
        varying = [name for name in (rows.queue, rows.partition) if not isinstance(name, str)]
        if not varying:
            yield rows
            return
        joined = varying[0] if len(varying) == 1 else pc.binary_join_element_wise(*varying, "\x00")
        names = joined.dictionary_encode()
        lanes = [zlib.crc32(name.encode()) % self._lanes for name in names.dictionary.to_pylist()]
        if len(lanes) == 1:
            yield rows.of_one_place(lanes[0])
            return
        for lane in sorted(set(lanes)):
            inside = pa.array([one == lane for one in lanes])
            indices = pc.indices_nonzero(inside.take(names.indices))
            order = pc.sort_indices(names.indices.take(indices))
            yield rows.take(lane, indices.take(order))


def checked_json(texts: pa.Array) -> pa.Array:
    """Texts that each are one JSON value, without the space around them. They are put together
    into larger texts later, where half a value would change the meaning of the next."""
    texts = pc.ascii_trim(texts, _JSON_SPACE)
    lines = pc.binary_join_element_wise(texts, "", "\n")
    offsets = memoryview(lines.buffers()[1]).cast("i")[lines.offset :]
    data = memoryview(lines.buffers()[2] or b"")[offsets[0] : offsets[len(lines)]]
    # A line may hold several values, and a value may span lines: then these differ.
    sizes = pc.binary_length(texts).to_pylist()
    try:
        found = list(map(len, _values.decode_lines(data)))
    except (msgspec.DecodeError, RecursionError):
        found = []
    if found != sizes:
        raise InvalidRequestError(_first_wrong(texts))
    return texts


def _first_wrong(texts: pa.Array) -> str:
    for text in texts.to_pylist():
        try:
            msgspec.json.decode(text, type=msgspec.Raw)
        except (msgspec.DecodeError, RecursionError) as error:
            return f"a payload is not JSON ({error}): {text[:80]!r}"
    return "a payload is not JSON"


def _plain(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(name)
    return column.cast(pa.string()) if pa.types.is_large_string(column.type) else column


def _text(batch: pa.RecordBatch, name: str, *, nulls: bool = False) -> pa.Array:
    column = _plain(batch, name)
    if column.null_count and not nulls:
        raise InvalidRequestError(f"the column {name!r} is null in a row")
    return column


def _whole(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    return batch.column(name).cast(pa.int64()) if name else None


def _micros(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    if not name:
        return None
    return batch.column(name).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
