"""Records, on both engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Raw

from monarq.clock import micros
from monarq.errors import NotFoundError
from monarq.model import Page, Record
from monarq.operations.records import DeleteRecord, GetRecord, ListRecords, PutRecord
from monarq.store import paging
from monarq.store.queries.database import Queries, handles
from monarq.times import Micros, micros_or_none

_SELECT = """
select kind, key, value, updated_at, expires_at from monarq.records
where kind = $1 and (expires_at is null or expires_at > monarq.time($2))
"""
# With only_new, an unexpired record is updated to what it is: `returning` gives no row for one
# that is left alone. `where true` separates `on conflict` from a join for SQLite.
_PUT = """
insert into monarq.records as r (kind, key, value, updated_at, expires_at)
select $1, $2, $3, t.now, t.now + $5 from (select monarq.time($4) as now) as t where true
on conflict (kind, key) do update set
    value = case when $6 and coalesce(r.expires_at > excluded.updated_at, true)
        then r.value else excluded.value end,
    updated_at = case when $6 and coalesce(r.expires_at > excluded.updated_at, true)
        then r.updated_at else excluded.updated_at end,
    expires_at = case when $6 and coalesce(r.expires_at > excluded.updated_at, true)
        then r.expires_at else excluded.expires_at end
returning kind, key, value, updated_at, expires_at
"""
# Not `expires_at is null or ...`: SQLite 3.40 answers false to that in a `returning`.
_DELETE = """
delete from monarq.records where kind = $1 and key = $2
returning coalesce(expires_at > monarq.time($3), true)
"""


@handles(ListRecords)
async def list_records(db: Queries, request: ListRecords) -> Page[Record]:
    last = paging.position(request.after, "records", str) or ""
    rows = await db.fetch(
        f"{_SELECT} and key > $3 order by key limit $4",
        request.kind,
        db.now(),
        last,
        request.limit + 1,
    )
    records = [_record(row) for row in rows]
    return paging.page(records, request.limit, "records", lambda record: record.key)


@handles(GetRecord)
async def get_record(db: Queries, request: GetRecord) -> Record:
    rows = await db.fetch(f"{_SELECT} and key = $3", request.kind, db.now(), request.key)
    if not rows:
        raise NotFoundError(f"there is no {request.kind} {request.key!r}")
    return _record(rows[0])


@handles(PutRecord)
async def put_record(db: Queries, request: PutRecord) -> Record:
    keep = None if request.keep_seconds is None else micros(request.keep_seconds)
    [row] = await db.fetch(
        _PUT, request.kind, request.key, request.value, db.now(), keep, request.only_new
    )
    return _record(row)


@handles(DeleteRecord)
async def delete_record(db: Queries, request: DeleteRecord) -> bool:
    rows = await db.fetch(_DELETE, request.kind, request.key, db.now())
    return any(row[0] for row in rows)


def _record(row: Sequence[Any]) -> Record:
    kind, key, value, updated_at, expires_at = row
    return Record(
        kind=kind,
        key=key,
        raw=Raw(value),
        updated_at=Micros(updated_at),
        expires_at=micros_or_none(expires_at),
    )
