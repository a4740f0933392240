"""Exporting messages as they are stored, and the logs and items row by row.

Works on a bare connection: nothing here needs a session, and nothing writes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence

import msgspec

from monarq.crypto import Cipher, has_seal
from monarq.model import PartitionRange
from monarq.store import positions, sealing
from monarq.store.exported import (
    ExportedMessages,
    ExportedRows,
    ExportedSegment,
    Span,
    cut_spans,
)
from monarq.store.positions import LogPlace
from monarq.store.sqlite.logs import MINUTE
from monarq.store.sqlite.segment_log import position_before

_texts = msgspec.msgpack.Decoder(list[str | None])
_blobs = msgspec.msgpack.Decoder(list[bytes | None])
_LISTS = {
    "transaction_id": "transaction_ids",
    "trace_id": "trace_ids",
    "producer": "producers",
}
# SQLite keeps what comes last in a row on pages that are read only where it is asked for.
_SEGMENTS = """
select first_seq, last_seq, created_at, {data}, {offsets}, {lists}
from segments where partition_id = ? and last_seq >= ? order by last_seq
"""
_BINDING = """
select transaction_ids, headers from segments where partition_id = ? and first_seq = ?
"""
_PARTITIONS = """
select id, name, first_seq, last_seq, last_at from partitions where queue_id = ? order by id
"""
_PLACE = """
select q.name, p.name from partitions p cross join queues q on q.id = p.queue_id where p.id = ?
"""

_KEPT = """
select p.id, p.first_seq, p.last_seq
from json_each(?) wanted cross join partitions p on p.id = wanted.value
cross join queues q on q.id = p.queue_id where q.kind = 'ordered'
"""

_DEAD_LETTER = {
    "message_id": "d.partition_id || '-' || d.seq",
    "partition": "d.partition_name",
    "consumer_group": "d.group_name",
}
_ITEM = {
    "partition": "p.name",
    "message_id": "d.partition_id || '-' || d.seq",
    "transaction_id": "coalesce(d.transaction_id, d.partition_id || '-' || d.seq)",
    "run_at": "case when d.state = 'scheduled' then d.due_at end",
}
_EXPRESSIONS: dict[str, dict[str, str]] = {
    "deliveries": {
        "partition": "d.partition_name",
        "consumer_group": "d.group_name",
        "lease_number": "d.lease_no",
    },
    "dead_letters": _DEAD_LETTER,
    "attempts": {"item_id": "d.partition_id || '-' || d.seq"},
    "metrics": {},
    "items": _ITEM,
}


def export_plan(
    db: sqlite3.Connection, queue_id: int, created_from: int | None, created_to: int | None
) -> list[PartitionRange]:
    rows = db.execute(_PARTITIONS, (queue_id,)).fetchall()
    found = []
    for partition_id, name, first_seq, last_seq, last_at in rows:
        first, last = first_seq, last_seq
        # Partitions that are wholly inside or outside are not searched.
        if created_from is not None:
            first = last_seq + 1
            if last_at >= created_from:
                first = 1 + position_before(db, partition_id, created_from, first_seq, last_seq)
        if created_to is not None and last_at >= created_to:
            last = position_before(db, partition_id, created_to, first_seq, last_seq)
        found.append(
            PartitionRange(
                partition_id=partition_id, partition=name, first_seq=first, last_seq=last
            )
        )
    return found


def kept_spans(db: sqlite3.Connection, spans: Sequence[Span]) -> list[Span]:
    wanted = msgspec.json.encode({int(partition_id) for partition_id, _, _ in spans}).decode()
    return cut_spans(spans, db.execute(_KEPT, (wanted,)))


def export_messages(
    db: sqlite3.Connection,
    cipher: Cipher | None,
    spans: Sequence[Span],
    columns: Collection[str],
    max_bytes: int,
) -> ExportedMessages:
    sql = _SEGMENTS.format(
        data="data" if "payload" in columns else "null",
        offsets="offsets" if "payload" in columns else "iif(deleted > 0, offsets, null)",
        lists=", ".join(name if column in columns else "null" for column, name in _LISTS.items()),
    )
    found: list[ExportedSegment] = []
    total = 0
    for index, (partition_id, first_seq, last_seq) in enumerate(spans):
        for segment in _within(db, sql, partition_id, first_seq, last_seq):
            found.append(_opened(db, segment, cipher))
            total += len(segment.data or b"")
            next_seq = segment.first_seq + segment.end
            if total > max_bytes:
                return ExportedMessages(found, (index, next_seq))
    return ExportedMessages(found)


def _within(
    db: sqlite3.Connection, sql: str, partition_id: int, first_seq: int, last_seq: int
) -> Iterator[ExportedSegment]:
    place = db.execute(_PLACE, (partition_id,)).fetchone()
    if place is None or first_seq > last_seq:
        return
    queue, partition = place
    rows = db.execute(sql, (partition_id, first_seq))
    try:
        for first, last, created_at, data, offsets, *lists in rows:
            if first > last_seq:
                return
            yield ExportedSegment(
                queue,
                partition,
                partition_id,
                first,
                created_at,
                max(0, first_seq - first),
                min(last, last_seq) - first + 1,
                data,
                offsets,
                *map(_decoded, lists),
            )
    finally:
        rows.close()


def _decoded(values: bytes | None) -> list[str | None] | None:
    return _texts.decode(values) if values else None


def _opened(
    db: sqlite3.Connection, segment: ExportedSegment, cipher: Cipher | None
) -> ExportedSegment:
    if segment.data is None or segment.offsets is None or not has_seal(segment.data):
        return segment
    # Sealed payloads are bound to what nobody may have asked for.
    ids, headers = db.execute(_BINDING, (segment.partition_id, segment.first_seq)).fetchone()
    data, offsets = sealing.open_segment(
        segment.data,
        segment.offsets,
        cipher,
        segment.queue,
        segment.partition,
        _decoded(ids),
        _blobs.decode(headers) if headers else None,
    )
    return segment._replace(data=data, offsets=offsets)


# --- rows ----------------------------------------------------------------------------------


def log_end(db: sqlite3.Connection, table: str, now: int) -> str:
    if table == "metrics":
        # The points of this minute may yet be replaced.
        row = db.execute("select max(at) from metrics where at < ?", (now - now % MINUTE,))
    else:
        # One writes at a time, so ids are in the order of commits.
        row = db.execute("select max(seq) from sqlite_sequence where name = ?", (table,))
    [last] = row.fetchone()
    return positions.position(last or 0)


def export_rows(
    db: sqlite3.Connection,
    cipher: Cipher | None,
    table: str,
    columns: Sequence[str],
    after: LogPlace,
    until: LogPlace | None,
    queues: Sequence[str] | None,
    limit: int,
) -> ExportedRows:
    keys = positions.KEYS[table]
    expressions = _EXPRESSIONS[table]
    chosen = [
        "q.name" if name == "queue" else expressions.get(name, f"d.{name}") for name in columns
    ]
    chosen += positions.binding(table, columns)
    key = ", ".join(f"d.{name}" for name in keys)
    terms = [f"({key}) > ({', '.join('?' * len(keys))})"]
    values: list[object] = [*after]
    if until is not None:
        terms.append(f"d.{keys[0]} <= ?")
        values.append(until[0])
    if queues is not None:
        terms.append("q.name in (select value from json_each(?))")
        values.append(msgspec.json.encode(list(queues)).decode())
    partitions = "cross join partitions p on p.id = d.partition_id" if table == "items" else ""
    rows = db.execute(
        f"""select {key}, {", ".join(chosen)} from {table} d {partitions}
        cross join queues q on q.id = d.queue_id
        where {" and ".join(terms)} order by {key} limit ?""",
        (*values, limit),
    ).fetchall()
    return positions.page(table, columns, rows, limit, cipher)
