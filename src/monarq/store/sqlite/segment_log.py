"""The log of a partition: writing segments, and reading them, whole or in part.

A segment never changes but for messages deleted in it, which `deleted` counts, so bodies are
cached between calls: a small pop does not read a large segment again and again, and what was just
pushed is not read at all.
"""

from __future__ import annotations

import sqlite3
import sys
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from monarq.crypto import Cipher, has_seal
from monarq.store import sealing, segments

_CACHE_BYTES = 16 << 20
_WORTH_KEEPING = 16 << 10
"""Smaller segments are read in a moment."""
_ROWS_AT_ONCE = 100
_texts = msgspec.msgpack.Decoder(list[str | None])
_blobs = msgspec.msgpack.Decoder(list[bytes | None])

_INSERT = """
insert into segments (partition_id, first_seq, last_seq, created_at, transaction_ids, trace_ids,
    producers, headers, offsets, data)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_HEADS = """
select id, partition_id, first_seq, last_seq, created_at, deleted from segments
where partition_id = ? and last_seq >= ? order by last_seq limit ?
"""
_BODY = """
select transaction_ids, trace_ids, producers, headers, offsets, data from segments where id = ?
"""


class Body:
    """What is in a segment; index 0 is its first message."""

    __slots__ = ("data", "has_sealed", "headers", "offsets", "producers", "trace_ids",
                 "transaction_ids")  # fmt: skip

    def __init__(self, row: Sequence[bytes | None]) -> None:
        transaction_ids, trace_ids, producers, headers, offsets, data = row
        assert offsets is not None
        assert data is not None
        self.transaction_ids = _texts.decode(transaction_ids) if transaction_ids else None
        self.trace_ids = _texts.decode(trace_ids) if trace_ids else None
        self.producers = _texts.decode(producers) if producers else None
        self.headers = _blobs.decode(headers) if headers else None
        self.offsets = decode_offsets(offsets)
        self.data = data
        # JSON has no such byte, so that most segments need no further look.
        self.has_sealed = has_seal(data)

    @property
    def is_plain(self) -> bool:
        return (
            self.transaction_ids is None
            and self.trace_ids is None
            and self.producers is None
            and self.headers is None
        )

    def stored_payloads(self, start: int, end: int) -> list[bytes]:
        """As they are kept: sealed, if they are."""
        offsets = self.offsets[start : end + 1]
        return segments.unpack(self.data[offsets[0] : offsets[-1]], offsets)

    def payloads(
        self, start: int, end: int, cipher: Cipher | None, queue: str, partition: str
    ) -> list[bytes]:
        stored = self.stored_payloads(start, end)
        if not self.has_sealed:
            return stored
        ids = segments.part(self.transaction_ids, start, end)
        headers = segments.part(self.headers, start, end)
        return sealing.open_payloads(stored, cipher, queue, partition, ids, headers)

    def opened_headers(
        self, start: int, end: int, cipher: Cipher | None
    ) -> list[bytes | None] | None:
        if self.headers is None:
            return None
        return [sealing.open_headers(one, cipher) for one in self.headers[start:end]]


class Head:
    """A segment without its body."""

    __slots__ = ("created_at", "deleted", "first_seq", "id", "last_seq", "partition_id")

    def __init__(self, row: tuple[int, int, int, int, int, int]) -> None:
        self.id, self.partition_id, self.first_seq, self.last_seq, *times = row
        self.created_at, self.deleted = times


class SegmentCache:
    """Bodies by partition and seq, which are never given again once committed; whoever rolls
    back must clear it. Rowids would not do: SQLite gives them again."""

    def __init__(self) -> None:
        self._bodies: OrderedDict[tuple[int, int, int], Body] = OrderedDict()
        self._bytes = 0

    def clear(self) -> None:
        self._bodies.clear()
        self._bytes = 0

    def body(self, db: sqlite3.Connection, head: Head) -> Body:
        key = (head.partition_id, head.last_seq, head.deleted)
        body = self._bodies.get(key)
        if body is not None:
            self._bodies.move_to_end(key)
            return body
        body = Body(db.execute(_BODY, (head.id,)).fetchone())
        self._keep(key, body)
        return body

    def stored_body(self, db: sqlite3.Connection, head: Head) -> Body:
        """The body whose stored bytes are to be written elsewhere. Sealed ones may have been sealed
        anew with another key since they were kept here."""
        body = self.body(db, head)
        return Body(db.execute(_BODY, (head.id,)).fetchone()) if body.has_sealed else body

    def learn(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Segments that this transaction has inserted: what is pushed is mostly popped soon."""
        for partition_id, _, last_seq, _, *content in rows:
            if len(content[-1]) >= _WORTH_KEEPING:
                self._keep((partition_id, last_seq, 0), Body(content))

    def _keep(self, key: tuple[int, int, int], body: Body) -> None:
        self._bodies[key] = body
        self._bytes += len(body.data)
        while self._bytes > _CACHE_BYTES:
            self._bytes -= len(self._bodies.popitem(last=False)[1].data)


def heads(
    db: sqlite3.Connection, partition_id: int, from_seq: int, most: int = _ROWS_AT_ONCE
) -> Iterator[Head]:
    """The segments from the one with this seq on; `most` is how many will do, as a rule."""
    at_once = min(most, _ROWS_AT_ONCE)
    while True:
        rows = db.execute(_HEADS, (partition_id, from_seq, at_once)).fetchall()
        yield from map(Head, rows)
        if len(rows) < at_once:
            return
        from_seq = rows[-1][3] + 1
        at_once = min(2 * at_once, _ROWS_AT_ONCE)


def head_at(db: sqlite3.Connection, partition_id: int, seq: int) -> Head | None:
    row = db.execute(_HEADS, (partition_id, seq, 1)).fetchone()
    if row is None or row[2] > seq:
        return None
    return Head(row)


def position_before(
    db: sqlite3.Connection, partition_id: int, time: int, first_seq: int, last_seq: int
) -> int:
    """The seq of the last message older than `time`. Times never fall within a partition, so
    this is a search by halves."""
    low, high = first_seq - 1, last_seq
    while low < high:
        middle = (low + high + 1) // 2
        head = head_at(db, partition_id, middle)
        assert head is not None
        if head.created_at < time:
            low = head.last_seq
        else:
            high = head.first_seq - 1
    return low


def segment_rows(
    partition_id: int,
    first_seq: int,
    created_at: int,
    payloads: Sequence[bytes],
    transaction_ids: list[str | None] | None,
    trace_ids: list[str | None] | None,
    producers: list[str | None] | None,
    headers: list[bytes | None] | None,
) -> Iterator[tuple[object, ...]]:
    """The rows for `insert_segments` that hold these messages."""
    for start, end, data, offsets in segments.packed(payloads):
        yield (
            partition_id,
            first_seq + start,
            first_seq + end - 1,
            created_at,
            _encoded(transaction_ids, start, end),
            _encoded(trace_ids, start, end),
            _encoded(producers, start, end),
            _encoded(headers, start, end),
            encode_offsets(offsets),
            data,
        )


def insert_segments(db: sqlite3.Connection, rows: Sequence[tuple[object, ...]]) -> None:
    db.executemany(_INSERT, rows)


def _encoded(values: Sequence[object] | None, start: int, end: int) -> bytes | None:
    if values is None:
        return None
    part = values[start:end]
    return msgspec.msgpack.encode(part) if any(part) else None


def encode_offsets(offsets: array[int]) -> bytes:
    if sys.byteorder == "big":
        offsets = offsets[:]
        offsets.byteswap()
    return offsets.tobytes()


def decode_offsets(stored: bytes) -> array[int]:
    offsets = array("i", stored)
    if sys.byteorder == "big":
        offsets.byteswap()
    return offsets


def reserve(
    db: sqlite3.Connection, partition_id: int, first_seq: int, last_seq: int, group: str
) -> None:
    """Segments with these seqs, and no others, are for one group alone."""
    db.execute(
        """update segments set for_group = ?
        where partition_id = ? and last_seq between ? and ?""",
        (group, partition_id, first_seq, last_seq),
    )


def erase(db: sqlite3.Connection, head: Head, body: Body, at: int) -> None:
    """Delete one message's payload and headers: the only time that a segment is rewritten."""
    payloads = body.stored_payloads(0, len(body.offsets) - 1)
    payloads[at] = b""
    data, offsets = segments.pack(payloads)
    headers = body.headers
    if headers is not None:
        headers = [None if index == at else one for index, one in enumerate(headers)]
    db.execute(
        """update segments set data = ?, offsets = ?, headers = ?, deleted = deleted + 1
        where id = ?""",
        (data, encode_offsets(offsets), _encoded(headers, 0, len(payloads)), head.id),
    )
