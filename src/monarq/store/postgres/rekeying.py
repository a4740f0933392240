"""One step of re-encryption on PostgreSQL, see `monarq.store.rekeying`.

A row is written back only if it is still the version that was read (`xmin`), so that nothing is
locked while values are opened and sealed.
"""

from __future__ import annotations

import asyncio
from typing import Any

from monarq.crypto import Cipher
from monarq.errors import StoreUnavailableError
from monarq.store import rekeying
from monarq.store.postgres.database import Database, Work
from monarq.store.rekeying import Place, RekeyStep, Resealing, SealedTable

TABLES = rekeying.tables("first_seq")
# Of each column, whether a sealed value may be in it.
_MAY_BE_SEALED = {
    "error": "coalesce(left(d.error, 1) = chr(2), false)",
    "payload": "get_byte(d.payload, 0) in (1, 2)",
    "result": "coalesce(get_byte(d.result, 0) in (1, 2), false)",
    "headers": "coalesce(position('u0002' in d.headers::text) > 0, false)",
    "data": "(position('\\x01'::bytea in d.data) > 0 or position('\\x02'::bytea in d.data) > 0)",
}
_WRITERS = """
    select distinct virtualtransaction from pg_locks
    where locktype = 'relation' and mode = 'RowExclusiveLock'
        and database = (select oid from pg_database where datname = current_database())
        and relation in (select oid from pg_class
            where relnamespace = (select relnamespace from pg_class
                where oid = 'monarq.segments'::regclass))
"""
_PATIENCE_SECONDS = 20.0


async def step(database: Database, cipher: Cipher, at: Place, limit: int) -> RekeyStep:
    async def work(unit: Work) -> RekeyStep:
        return await _step(unit, cipher, at, limit)

    return await database.atomically(work)


async def _step(unit: Work, cipher: Cipher, at: Place, limit: int) -> RekeyStep:
    table = at.table
    done = RekeyStep(table.name)
    resealing = Resealing(cipher, done)
    limit = await _fitting(unit, at, limit)
    keys = []
    for row in await unit.fetch(_select(table), *at.after, limit):
        keys.append(tuple(row[key] for key in table.keys))
        if row["is_sealed"] and (row["queue"] is not None or table.name == "traces"):
            before = done.changed
            changes = resealing.row(table.name, dict(row))
            if changes and not await _update(unit, table, keys[-1], row["version"], changes):
                done.missed += 1
                done.changed = before
    return rekeying.finish(done, at, TABLES, keys, limit)


async def _fitting(unit: Work, at: Place, limit: int) -> int:
    table = at.table
    if table.size is None:
        return limit
    keys = ", ".join(table.keys)
    numbers = ", ".join(f"${n}" for n in range(1, len(table.keys) + 1))
    sizes = await unit.fetch(
        f"select {table.size} from monarq.{table.name} "
        f"where ({keys}) > ({numbers}) order by {keys} limit ${len(table.keys) + 1}",
        *at.after,
        limit,
    )
    return rekeying.fitting(limit, [row[0] for row in sizes])


def _select(table: SealedTable) -> str:
    columns = [*table.columns, *(name for name in table.bound if name not in table.keys)]
    sealed = " or ".join(_MAY_BE_SEALED[name] for name in table.columns)
    keys = ", ".join(f"d.{key}" for key in table.keys)
    numbers = ", ".join(f"${n}" for n in range(1, len(table.keys) + 1))
    queue_id = "p.queue_id" if table.by_partition else "d.queue_id"
    if table.name == "traces":
        queue_id = "null"
    partition = (
        "left join monarq.partitions p on p.id = d.partition_id" if table.by_partition else ""
    )
    partition_name = "p.name" if table.by_partition else "null"
    chosen = ", ".join(f"case when d.is_sealed then d.{name} end as {name}" for name in columns)
    return f"""
        select {keys}, d.is_sealed, d.version, {chosen},
            q.name as queue, {partition_name} as partition
        from (
            select d.*, ({sealed}) as is_sealed from (
                select d.*, d.xmin::text as version from monarq.{table.name} d
                where ({keys}) > ({numbers}) order by {keys} limit ${len(table.keys) + 1}
            ) d offset 0) d
        {partition} left join monarq.queues q on q.id = {queue_id}
        order by {keys}
    """


async def _update(
    unit: Work, table: SealedTable, key: tuple[int, ...], version: str, changes: dict[str, Any]
) -> bool:
    """Whether the row was still there as it was read."""
    columns = ", ".join(f"{name} = ${n}" for n, name in enumerate(changes, 1))
    first = len(changes) + 1
    own = " and ".join(f"{name} = ${n}" for n, name in enumerate(table.keys, first))
    rows = await unit.fetch(
        f"update monarq.{table.name} set {columns} "
        f"where {own} and xmin = ${first + len(key)}::text::xid returning 1",
        *changes.values(),
        *key,
        version,
    )
    return bool(rows)


async def wait_for_writers(database: Database) -> None:
    """Return once all transactions have ended that are writing now: one of them may have read a
    value before it was sealed anew, and store it elsewhere after a pass has looked there."""
    writers = [row[0] for row in await database.fetch(_WRITERS)]
    pause, waited = 0.001, 0.0
    while writers:
        if waited > _PATIENCE_SECONDS:
            raise StoreUnavailableError(
                f"a transaction has been writing for more than {_PATIENCE_SECONDS:.0f} s: "
                "what it moves is not known yet, try again when it has ended"
            )
        await asyncio.sleep(pause)
        waited += pause
        pause = min(2 * pause, 0.1)
        rows = await database.fetch(f"{_WRITERS} and virtualtransaction = any ($1)", writers)
        writers = [row[0] for row in rows]
