"""A schema that serves the next test has nothing left of the last."""

from typing import Any

import asyncpg
import pytest

from monarq.model import Push, PushItem, QueueKind
from monarq.store import open_store
from tests import kept_schemas
from tests.kept_schemas import empty_schema


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a server that was given too: the test's database goes with it."""
    monkeypatch.setattr(kept_schemas, "GIVEN_DSN", None)


async def content(dsn: str, schema: str) -> dict[str, Any]:
    """What every table holds, and where every sequence stands."""
    connection = await asyncpg.connect(dsn)
    try:
        tables = await connection.fetch(
            "select tablename from pg_tables where schemaname = $1", schema
        )
        sequences = await connection.fetch(
            "select sequencename, last_value from pg_sequences where schemaname = $1", schema
        )
        return dict(map(tuple, sequences)) | {
            name: list(map(tuple, await connection.fetch(f'select * from "{schema}"."{name}"')))
            for (name,) in tables
        }
    finally:
        await connection.close()


async def fill(dsn: str, schema: str) -> None:
    async with await open_store(dsn, schema=schema) as store:
        await store.configure("w", kind=QueueKind.WORK)
        await store.push([Push([PushItem("q", b"1", "p", "t"), PushItem("w", b"2")])])
        await store.lifecycle()


async def test_it_is_empty_again_and_counts_from_the_start(postgres_database: str) -> None:
    async with empty_schema(postgres_database) as first:
        made = await content(postgres_database, first)
        await fill(postgres_database, first)
        assert await content(postgres_database, first) != made
    async with empty_schema(postgres_database) as second:
        assert second == first
        assert await content(postgres_database, second) == made
        await fill(postgres_database, second)


@pytest.mark.parametrize(
    "change",
    [
        'create table "{}".another (id int)',
        'alter table "{}".segments add column another int',
        'drop view "{}".messages',
        'create or replace function "{}".another() returns int language sql return 1',
        'alter function "{}".pop_messages set enable_sort = off',
        'analyze "{}".schema_migrations',
    ],
)
async def test_it_is_not_kept_if_the_next_test_would_find_another(
    postgres_database: str, change: str
) -> None:
    async with empty_schema(postgres_database) as changed:
        connection = await asyncpg.connect(postgres_database)
        await connection.execute(change.format(changed))
        await connection.close()
    async with empty_schema(postgres_database) as next_one:
        assert next_one != changed
