"""Stores of another schema version: the next version upgrades them, others are refused."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monarq.errors import MonarqError, SchemaVersionError
from monarq.store import Store
from monarq.store.postgres import migrations as postgres
from monarq.store.sqlite import migrations as sqlite
from tests.kept_schemas import STRUCTURE
from tests.store.at_rest import bytes_at_rest, run_sql
from tests.store.calls import pop, push
from tests.store.conftest import OpenStore, Place

#: A migration that the next version may bring.
NEXT = """
alter table monarq.queues add column colour text not null default 'grey';
create index queues_by_colour on monarq.queues (colour);
"""
BROKEN = f"{NEXT} alter table monarq.queues add column colour text not null default 'grey';"

NextVersion = Callable[[str], None]


@pytest.fixture
def next_version(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> NextVersion:
    """Turns this process into the next version of Monarq, which has the given migration."""
    migrations: Any = postgres if place.is_postgres else sqlite
    folder = "migrations" if place.is_postgres else "."
    files, version = migrations._SQL, postgres.VERSION

    def become(migration: str) -> None:
        copy = tmp_path / "sql"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(files, copy)
        sql = migration if place.is_postgres else migration.replace("monarq.", "")
        (copy / folder / "9001_colours.sql").write_text(sql, encoding="utf-8")
        monkeypatch.setattr(migrations, "_SQL", copy)
        monkeypatch.setattr(postgres, "VERSION", version + 1)

    return become


async def state(place: Place) -> list[Any]:
    """What the store's files or tables hold, and on PostgreSQL the marks of its structure."""
    structure: list[Any] = []
    if place.is_postgres:
        structure += await run_sql(place, STRUCTURE.replace("$1", "?"), place.schema)
    return [*structure, await bytes_at_rest(place)]


async def make_older(place: Place) -> None:
    """Leave the notes that the last version before the first migration of today left."""
    if place.is_postgres:
        await run_sql(place, "delete from schema_migrations")
        await run_sql(place, "insert into schema_migrations values ('0024_joined_to.sql', 61)")
    else:
        await run_sql(place, "pragma user_version = 16")


async def test_the_next_version_upgrades_a_store_once_and_keeps_what_is_in_it(
    store: Store, place: Place, open_another: OpenStore, next_version: NextVersion
) -> None:
    await push(store, "q", b'"kept"')
    await store.close()
    next_version(NEXT)
    for _ in range(2):
        await (await open_another()).close()
    assert await run_sql(place, "select name, colour from queues") == [("q", "grey")]
    upgraded = await open_another()
    assert [message.payload for message in (await pop(upgraded, "q")).messages] == [b'"kept"']
    await push(upgraded, "another")


async def test_of_several_that_upgrade_a_store_at_once_one_does_it(
    store: Store, open_another: OpenStore, next_version: NextVersion
) -> None:
    await push(store, "q")
    await store.close()
    next_version(NEXT)
    upgraded = await asyncio.gather(*(open_another() for _ in range(4)))
    for each in upgraded:
        assert (await push(each, "q", transaction_id="one")).seq == 2


async def test_a_migration_that_fails_half_way_leaves_the_store_as_it_was(
    store: Store, place: Place, open_another: OpenStore, next_version: NextVersion
) -> None:
    await push(store, "q")
    await store.close()
    before = await state(place)
    next_version(BROKEN)
    with pytest.raises(MonarqError):
        await open_another()
    assert await state(place) == before
    next_version(NEXT)
    upgraded = await open_another()
    assert (await push(upgraded, "q")).seq == 2


async def test_a_newer_store_is_refused_and_left_alone(
    store: Store,
    place: Place,
    open_another: OpenStore,
    next_version: NextVersion,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await push(store, "q")
    await store.close()
    next_version(NEXT)
    await (await open_another()).close()
    monkeypatch.undo()
    before = await state(place)
    with pytest.raises(SchemaVersionError, match="upgrade Monarq"):
        await open_another()
    assert await state(place) == before


async def test_an_older_store_than_the_first_migration_makes_is_refused_and_left_alone(
    store: Store, place: Place, open_another: OpenStore
) -> None:
    await push(store, "q")
    await store.close()
    await make_older(place)
    before = await state(place)
    with pytest.raises(SchemaVersionError, match=r"too old.*monarq export.*monarq import"):
        await open_another()
    assert await state(place) == before
