"""Brings a schema of a database to that of this version: numbered migrations, then the procedures.

The first file in `sql/migrations` makes all tables of an empty schema; the others change what the
one before has made. A migration that was released is never changed. The table `schema_migrations`
has the names of those that ran. Procedures are all dropped and made again whenever the version is
another one.

A schema that the first migration has not made cannot be upgraded, and one with a higher version is
of a newer Monarq. Both are refused before anything is written. Everything runs in one transaction,
under a lock: a crash or an error leaves the schema as it was, and of several brokers that open it
at once, one does the work and the others wait, and then find nothing to do.
"""

from __future__ import annotations

from importlib.resources import files

from asyncpg.pool import PoolConnectionProxy

from monarq.store.schema_versions import newer, older

VERSION, DIGEST = 66, "7bc2414f9bd361e2"
"""The schema's version and the digest of the files below `sql`. A store with a higher version is
refused. `./dev schema` writes this line after a change of the files."""

_SQL = files("monarq.store.postgres") / "sql"
_LOCK = 0x6D6F6E61727121
# All but those that a table or view needs, which are the migrations' own.
_PROCEDURES = """
    select p.oid::regprocedure::text as name from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = $1 and not exists (
        select from pg_depend d where d.refclassid = 'pg_proc'::regclass and d.refobjid = p.oid)
"""


async def migrate(connection: PoolConnectionProxy, schema: str) -> None:
    if await _installed(connection, schema) == VERSION:
        return
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
        installed = await _installed(connection, schema)
        if installed == VERSION:
            return
        if installed > VERSION:
            raise newer(f"the store in schema {schema!r}", installed, VERSION)
        if installed and min(_scripts("migrations")) not in await _done(connection, schema):
            raise older(f"the store in schema {schema!r}", installed)
        await connection.execute(f'create schema if not exists "{schema}"')
        await connection.execute(
            f'create table if not exists "{schema}".schema_migrations '
            "(name text primary key, version integer not null)"
        )
        await _apply(connection, schema)


async def _installed(connection: PoolConnectionProxy, schema: str) -> int:
    table = f'"{schema}".schema_migrations'
    if await connection.fetchval("select to_regclass($1)", table) is None:
        return 0
    return int(await connection.fetchval(f"select coalesce(max(version), 0) from {table}"))


async def _done(connection: PoolConnectionProxy, schema: str) -> set[str]:
    rows = await connection.fetch(f'select name from "{schema}".schema_migrations')
    return {row["name"] for row in rows}


async def _apply(connection: PoolConnectionProxy, schema: str) -> None:
    table = f'"{schema}".schema_migrations'
    done = await _done(connection, schema)
    for script in sorted(_scripts("migrations")):
        if script not in done:
            await connection.execute(render(_read("migrations", script), schema))
            await connection.execute(f"insert into {table} values ($1, $2)", script, VERSION)
    # One that takes other arguments than before would stand beside the old one, not replace it.
    for row in await connection.fetch(_PROCEDURES, schema):
        await connection.execute(f"drop function {row['name']}")
    # Procedures refer to each other in any order: bodies are checked when they run.
    await connection.execute("set local check_function_bodies = off")
    for script in sorted(_scripts("procedures")):
        await connection.execute(render(_read("procedures", script), schema))
    await connection.execute(f"update {table} set version = $1", VERSION)


def render(sql: str, schema: str) -> str:
    """The SQL files say `monarq.`; a store may live in another schema."""
    return sql if schema == "monarq" else sql.replace("monarq.", f'"{schema}".')


def _scripts(folder: str) -> list[str]:
    return [entry.name for entry in (_SQL / folder).iterdir() if entry.name.endswith(".sql")]


def _read(folder: str, name: str) -> str:
    return (_SQL / folder / name).read_text(encoding="utf-8")
