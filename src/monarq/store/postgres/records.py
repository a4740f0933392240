"""Records, and what running attempts print."""

from __future__ import annotations

from typing import Any

from monarq.clock import micros
from monarq.crypto import OVERHEAD, Cipher
from monarq.errors import NotFoundError
from monarq.model import MAX_OUTPUT_BYTES, OutputPart, Page, Record
from monarq.store import paging, sealing
from monarq.store.postgres.catalog import Catalog
from monarq.store.postgres.database import Database
from monarq.store.validation import (
    check_item_id,
    refuse_more_output,
)

_RECORDS = """
    select kind, key, value, updated_at, expires_at from monarq.records
    where kind = $1 and (expires_at is null or expires_at > monarq.time($2))
"""


_OUTPUT = f"""
    select start, data, sealed from monarq.outputs
    where partition_id = $1 and seq = $2 and attempt = $3 and start < $5
        and start + length(data) - case when sealed then {OVERHEAD} else 0 end > $4
    order by start
"""
_HAS_TO_BE_SEALED = -1
# Written anew also if it stays: only then is it the answer, whoever made it at the same time.
_PUT = """
    insert into monarq.records as r (kind, key, value, updated_at, expires_at)
    select $1, $2, $3, now, now + $5 from monarq.time($4) now
    on conflict (kind, key) do update set (value, updated_at, expires_at) = (
        select n.value, n.updated_at, n.expires_at
        from (values (true, r.value, r.updated_at, r.expires_at),
            (false, excluded.value, excluded.updated_at, excluded.expires_at)
        ) as n (stays, value, updated_at, expires_at)
        where n.stays = ($6 and coalesce(r.expires_at > excluded.updated_at, true)))
    returning kind, key, value, updated_at, expires_at
"""


async def put_record(
    database: Database,
    kind: str,
    key: str,
    value: bytes,
    keep_seconds: float | None,
    only_new: bool,
) -> Record:
    row = await database.fetchrow(
        _PUT,
        kind,
        key,
        value,
        database.now(),
        None if keep_seconds is None else micros(keep_seconds),
        only_new,
    )
    assert row is not None
    return _to_record(row)


async def get_record(database: Database, kind: str, key: str) -> Record:
    row = await database.fetchrow(f"{_RECORDS} and key = $3", kind, database.now(), key)
    if row is None:
        raise NotFoundError(f"there is no {kind} {key!r}")
    return _to_record(row)


async def list_records(
    database: Database, kind: str, limit: int, after: str | None
) -> Page[Record]:
    last = paging.position(after, "records", str) or ""
    rows = await database.fetch(
        f"{_RECORDS} and key > $3 order by key limit $4", kind, database.now(), last, limit + 1
    )
    return paging.page([_to_record(row) for row in rows], limit, "records", lambda r: r.key)


async def delete_record(database: Database, kind: str, key: str) -> bool:
    rows = await database.fetch(
        "delete from monarq.records where kind = $1 and key = $2 "
        "returning expires_at is null or expires_at > monarq.time($3)",
        kind,
        key,
        database.now(),
    )
    return any(row[0] for row in rows)


def _to_record(row: Any) -> Record:
    return Record(
        kind=row["kind"],
        key=row["key"],
        value=row["value"],
        updated_at=row["updated_at"],
        expires_at=row["expires_at"],
    )


async def append_output(
    database: Database,
    catalog: Catalog,
    cipher: Cipher | None,
    item_id: str,
    attempt: int,
    data: bytes,
    *,
    commands: bool,
) -> int:
    place = (*check_item_id(item_id), attempt)
    await catalog.check_may_work(place[0], commands)
    size = await _append(database, place, data, None)
    if size == _HAS_TO_BE_SEALED:
        size = await _append(database, place, data, sealing.stored_output(data, cipher, place))
    if size is None:
        raise NotFoundError(f"there is no item {item_id}")
    if size > MAX_OUTPUT_BYTES:
        raise refuse_more_output(item_id, attempt)
    return size


async def _append(
    database: Database, place: tuple[int, int, int], data: bytes, sealed: bytes | None
) -> int | None:
    size: int | None = await database.fetchval(
        "select monarq.append_output($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        database.now(),
        *place,
        data if sealed is None else sealed,
        len(data),
        sealed is not None,
        MAX_OUTPUT_BYTES,
        _HAS_TO_BE_SEALED,
    )
    return size


async def read_output(
    database: Database,
    cipher: Cipher | None,
    item_id: str,
    attempt: int,
    start: int,
    max_bytes: int,
) -> OutputPart:
    place = (*check_item_id(item_id), attempt)
    rows = await database.fetch(_OUTPUT, *place, start, start + max_bytes)
    parts = [
        (first, sealing.open_output(part, cipher, place) if is_sealed else part)
        for first, part, is_sealed in rows
    ]
    data = b"".join(part[max(0, start - first) :] for first, part in parts)[:max_bytes]
    return OutputPart(data=data, next=start + len(data))
