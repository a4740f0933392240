"""Schemas on PostgreSQL that serve one test after another, since making one takes longer than most
tests.

A schema is emptied for the next test if the last one left its tables, procedures and triggers as
they were made, small and without statistics for the planner, and dropped otherwise. A server that
is not the run's own gets none that stay.

All of this goes over one connection to each server, which stays open as long as the process. A new
one for each test would take longer than what it is for. It belongs to an event loop of its own,
which runs in a thread while the test's loop waits.
"""

import asyncio
import atexit
import contextlib
import functools
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import asyncpg

from monarq.store import open_store
from tests.shared_postgres import GIVEN_DSN

#: Changes with every statement that makes, alters or replaces something in the schema.
STRUCTURE = """
    with namespace as (select oid from pg_namespace where nspname = $1),
    made as (
        select 'pg_class' as kind, c.oid, c.xmin from pg_class c, namespace n
        where c.relnamespace = n.oid
        union all
        select 'pg_proc', p.oid, p.xmin from pg_proc p, namespace n where p.pronamespace = n.oid
        union all
        select 'pg_trigger', t.oid, t.xmin from pg_trigger t
        join pg_class c on c.oid = t.tgrelid, namespace n where c.relnamespace = n.oid
    )
    select md5(string_agg(format('%s %s %s', kind, oid, xmin), ',' order by kind, oid)) from made
"""
#: Emptied tables keep their size, and statistics of what was in them.
_HAS_GROWN = """
    select coalesce(sum(pg_relation_size(c.oid)), 0) > 4000000
        or exists (select from pg_statistic s join pg_class t on t.oid = s.starelid
            where t.relnamespace = $1::regnamespace)
    from pg_class c where c.relnamespace = $1::regnamespace
"""
_TABLES = "select tablename from pg_tables where schemaname = $1 order by 1"
_RESTART = """
    select setval(s.seqrelid, s.seqstart, false) from pg_sequence s
    join pg_class c on c.oid = s.seqrelid where c.relnamespace = $1::regnamespace
"""


@dataclass(frozen=True)
class _Schema:
    """One as it was made: what is in its tables is what the migrations wrote."""

    name: str
    structure: str
    tables: dict[str, Sequence[asyncpg.Record]]


T = TypeVar("T")
_free: dict[str, list[_Schema]] = defaultdict(list)
_connections: dict[str, asyncpg.Connection] = {}
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kept-schemas")


@contextlib.asynccontextmanager
async def empty_schema(address: str) -> AsyncIterator[str]:
    """The name of a schema with a store in it that nothing was ever done to, or so it seems."""
    schema = _free[address].pop() if _free[address] else await _make(address)
    try:
        yield schema.name
    finally:
        if await _over_kept_connection(address, lambda kept: _clean_up(kept, schema)):
            _free[address].append(schema)


async def _make(address: str) -> _Schema:
    name = f"test_{secrets.token_hex(6)}"
    await (await open_store(address, schema=name)).close()
    return await _over_kept_connection(address, lambda kept: _describe(kept, name))


async def _describe(connection: asyncpg.Connection, name: str) -> _Schema:
    return _Schema(
        name,
        await connection.fetchval(STRUCTURE, name),
        {
            table: await connection.fetch(f'select * from "{name}"."{table}"')
            for (table,) in await connection.fetch(_TABLES, name)
        },
    )


async def _clean_up(connection: asyncpg.Connection, schema: _Schema) -> bool:
    """Empty the schema, or drop it and return False."""
    if GIVEN_DSN is None and await _is_as_made(connection, schema):
        await _empty(connection, schema)
        return True
    await connection.execute("set client_min_messages = warning")
    await connection.execute(f'drop schema if exists "{schema.name}" cascade')
    return False


async def _is_as_made(connection: asyncpg.Connection, schema: _Schema) -> bool:
    if await connection.fetchval(STRUCTURE, schema.name) != schema.structure:
        return False
    return not await connection.fetchval(_HAS_GROWN, schema.name)


async def _empty(connection: asyncpg.Connection, schema: _Schema) -> None:
    """By deleting: to truncate takes as long as to make them anew."""
    async with connection.transaction():
        await connection.execute(
            ";".join(f'delete from "{schema.name}"."{table}"' for table in schema.tables)
        )
        await connection.execute(_RESTART, schema.name)
        for table, rows in schema.tables.items():
            if rows:
                await connection.copy_records_to_table(table, schema_name=schema.name, records=rows)


async def _over_kept_connection(
    address: str, work: Callable[[asyncpg.Connection], Coroutine[Any, Any, T]]
) -> T:
    async def do() -> T:
        if address not in _connections or _connections[address].is_closed():
            _connections[address] = await asyncpg.connect(address)
        return await work(_connections[address])

    done = asyncio.get_running_loop().run_in_executor(
        _thread, lambda: _loop().run_until_complete(do())
    )
    return await done


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    atexit.register(_close, loop)
    return loop


def _close(loop: asyncio.AbstractEventLoop) -> None:
    for connection in _connections.values():
        # Its server may be gone.
        connection.terminate()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
