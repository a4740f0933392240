"""Opening a store: the right one, made once by however many come at once, no wrong file."""

import asyncio
import socket
import sqlite3
from pathlib import Path

import pytest

from monarq.clock import ManualClock
from monarq.errors import (
    InvalidRequestError,
    MonarqError,
    SchemaVersionError,
    StoreUnavailableError,
)
from monarq.store import Store, open_store
from tests.store.calls import pop, push
from tests.store.conftest import KEY, OpenStore, Place
from tests.store.scenarios import every, stats


@pytest.mark.parametrize(
    "address",
    ["", "nonsense", "mysql://localhost/x", "sqlite:", "sqlite:x.db", "sqlite:///", "sqlite://x"],
)
async def test_an_address_that_names_no_store_is_refused(address: str) -> None:
    with pytest.raises(InvalidRequestError):
        await open_store(address)


async def test_two_memory_stores_share_nothing(clock: ManualClock) -> None:
    async with (
        await open_store("memory:", clock=clock) as one,
        await open_store("memory:", clock=clock) as two,
    ):
        await push(one, "q")
        assert await every(two.list_queues) == []


async def test_a_store_runs_on_real_time_when_it_is_given_no_clock(place: Place) -> None:
    opened = await open_store(place.address, schema=place.schema)
    async with opened:
        first = await push(opened, "q")
        second = await push(opened, "q")
        rows = await every(opened.list_messages, "q")
        assert [row.seq for row in rows] == [first.seq, second.seq]
        # Between the years 2020 and 2100, in microseconds.
        assert 1_577_836_800 * 10**6 < rows[0].created_at <= rows[1].created_at
        assert rows[1].created_at < 4_102_444_800 * 10**6
        popped = await pop(opened, "q", 2, lease_seconds=60)
        assert popped.lease_until is not None
        assert 60 * 10**6 <= popped.lease_until - rows[1].created_at <= 120 * 10**6


async def test_many_that_open_a_new_store_at_once_make_it_once(
    open_another: OpenStore, clock: ManualClock
) -> None:
    stores = await asyncio.gather(*(open_another() for _ in range(5)))
    answers = await asyncio.gather(*(push(each, "q", transaction_id="one") for each in stores))
    assert sorted(answer.status for answer in answers) == ["duplicate"] * 4 + ["queued"]
    assert (await stats(stores[3], "q")).stored == 1


async def test_opening_again_finds_everything_and_changes_nothing(
    store: Store, open_another: OpenStore
) -> None:
    await push(store, "q", b'"kept"')
    for _ in range(3):
        again = await open_another()
        assert [row.payload for row in await every(again.list_messages, "q")] == [b'"kept"']
        await again.close()


# --- SQLite ---


async def test_a_relative_path_is_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with await open_store("sqlite:///some.db"):
        pass
    assert (tmp_path / "some.db").exists()


async def test_the_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "foreign.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table precious (x)")
    connection.close()
    with pytest.raises(SchemaVersionError):
        await open_store(f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        tables = connection.execute("select name from sqlite_master").fetchall()
        assert tables == [("precious",)]
    connection.close()


async def test_a_file_that_is_no_database_is_a_typed_error_and_left_alone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear Sir or Madam,\n" * 100)
    before = path.read_bytes()
    with pytest.raises(MonarqError):
        await open_store(f"sqlite:///{path}")
    assert path.read_bytes() == before


async def test_a_place_where_no_file_can_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(StoreUnavailableError):
        await open_store(f"sqlite:///{tmp_path}/file/below.db")


# --- PostgreSQL ---


@pytest.fixture
def no_listener() -> int:
    """A port on which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


async def test_a_server_that_is_not_there_is_unavailable_within_a_bounded_time(
    no_listener: int,
) -> None:
    async with asyncio.timeout(30):
        with pytest.raises(StoreUnavailableError):
            await open_store(f"postgresql://nobody@127.0.0.1:{no_listener}/none")


async def test_two_schemas_of_one_database_share_nothing(
    postgres_database: str, clock: ManualClock
) -> None:
    async with (
        await open_store(postgres_database, clock=clock, schema="one", keys=[KEY]) as one,
        await open_store(postgres_database, clock=clock, schema="two") as two,
    ):
        await push(one, "q")
        assert await every(two.list_queues) == []
        answer = await push(two, "q")
        assert answer.seq == 1


@pytest.mark.parametrize("schema", ["select", "tenant_1"])
async def test_a_schema_may_have_a_name_of_its_own(
    postgres_database: str, clock: ManualClock, schema: str
) -> None:
    async with await open_store(postgres_database, clock=clock, schema=schema) as opened:
        await push(opened, "q", b"1")
        assert [m.payload for m in (await pop(opened, "q")).messages] == [b"1"]


@pytest.mark.parametrize("schema", ["", 'a"b', "x" * 64, "a\x00b", "a b", "a.b", "1a"])
async def test_a_schema_name_that_would_need_quoting_is_refused(
    postgres_database: str, schema: str
) -> None:
    with pytest.raises(InvalidRequestError):
        await open_store(postgres_database, schema=schema)


async def test_opening_needs_nothing_in_the_public_schema(
    postgres_database: str, clock: ManualClock
) -> None:
    import asyncpg

    async with await open_store(postgres_database, clock=clock, schema="mine") as opened:
        await push(opened, "q")
        connection = await asyncpg.connect(postgres_database)
        try:
            rows = await connection.fetch(
                "select nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
                " where nspname not like 'pg\\_%' and nspname <> 'information_schema'"
                " group by nspname"
            )
            assert [row["nspname"] for row in rows] == ["mine"]
        finally:
            await connection.close()
