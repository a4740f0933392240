"""Records, and what running attempts print."""

from __future__ import annotations

import contextlib
from typing import Any

from monarq.clock import micros
from monarq.crypto import OVERHEAD
from monarq.errors import NotFoundError
from monarq.model import MAX_OUTPUT_BYTES, OutputPart, Page, Record
from monarq.store import paging, sealing, validation
from monarq.store.sqlite import items
from monarq.store.sqlite.session import Session

_RECORDS = """
select kind, key, value, updated_at, expires_at from records
where kind = ? and (expires_at is null or expires_at > ?)
"""
# What an attempt prints may begin with any byte, so that a column says whether it is sealed.
_SIZE = f"length(data) - iif(sealed, {OVERHEAD}, 0)"


def put_record(
    session: Session,
    kind: str,
    key: str,
    value: bytes,
    keep_seconds: float | None,
    only_new: bool,
) -> Record:
    if only_new:
        with contextlib.suppress(NotFoundError):
            return get_record(session, kind, key)
    expires_at = None if keep_seconds is None else session.now + micros(keep_seconds)
    session.db.execute(
        "insert or replace into records (kind, key, value, updated_at, expires_at) "
        "values (?, ?, ?, ?, ?)",
        (kind, key, value, session.now, expires_at),
    )
    return Record(kind=kind, key=key, value=value, updated_at=session.now, expires_at=expires_at)


def get_record(session: Session, kind: str, key: str) -> Record:
    row = session.db.execute(f"{_RECORDS} and key = ?", (kind, session.now, key)).fetchone()
    if row is None:
        raise NotFoundError(f"there is no {kind} {key!r}")
    return _to_record(row)


def list_records(session: Session, kind: str, limit: int, after: str | None) -> Page[Record]:
    last = paging.position(after, "records", str) or ""
    rows = session.db.execute(
        f"{_RECORDS} and key > ? order by key limit ?", (kind, session.now, last, limit + 1)
    )
    return paging.page([_to_record(row) for row in rows], limit, "records", lambda r: r.key)


def delete_record(session: Session, kind: str, key: str) -> bool:
    gone = session.db.execute(
        "delete from records where kind = ? and key = ? returning expires_at", (kind, key)
    ).fetchall()
    return any(expires_at is None or expires_at > session.now for (expires_at,) in gone)


def _to_record(row: tuple[Any, ...]) -> Record:
    kind, key, value, updated_at, expires_at = row
    return Record(kind=kind, key=key, value=value, updated_at=updated_at, expires_at=expires_at)


# --- output --------------------------------------------------------------------------------


def append_output(
    session: Session, item_id: str, attempt: int, data: bytes, *, commands: bool
) -> int:
    place = (*validation.check_item_id(item_id), attempt)
    item = items.find_item(session, *place[:2])
    if item is None:
        raise NotFoundError(f"there is no item {item_id}")
    queue = session.queue_by_id(item.queue_id)
    is_sealed = queue.options.encryption_enabled
    validation.check_may_work(queue.options.runs_commands, queue.name, commands)
    [size] = session.db.execute(
        f"select coalesce(max(start + {_SIZE}), 0) from outputs "
        "where (partition_id, seq, attempt) = (?, ?, ?)",
        place,
    ).fetchone()
    if size + len(data) > MAX_OUTPUT_BYTES:
        raise validation.refuse_more_output(item_id, attempt)
    if data:
        stored = sealing.stored_output(data, session.cipher, place) if is_sealed else data
        session.db.execute(
            "insert into outputs (partition_id, seq, attempt, start, data, written_at, sealed) "
            "values (?, ?, ?, ?, ?, ?, ?)",
            (*place, size, stored, session.now, is_sealed),
        )
    return int(size + len(data))


def read_output(
    session: Session, item_id: str, attempt: int, start: int, max_bytes: int
) -> OutputPart:
    place = (*validation.check_item_id(item_id), attempt)
    rows = session.db.execute(
        "select start, data, sealed from outputs where (partition_id, seq, attempt) = (?, ?, ?) "
        f"and start + {_SIZE} > ? and start < ? order by start",
        (*place, start, start + max_bytes),
    )
    parts = [
        (first, sealing.open_output(part, session.cipher, place) if is_sealed else part)
        for first, part, is_sealed in rows
    ]
    data = b"".join(part[max(0, start - first) :] for first, part in parts)[:max_bytes]
    return OutputPart(data=data, next=start + len(data))
