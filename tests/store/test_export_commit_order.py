"""The logs of PostgreSQL, where transactions end in any order: no row is passed over."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import asyncpg
import pytest

from monarq.errors import StoreUnavailableError
from monarq.store import Store
from monarq.store.postgres import exporting
from tests.shared_postgres import POSTGRES_NAMES
from tests.store.calls import ack_all, pop, push
from tests.store.conftest import OpenStore, Place
from tests.store.reading_logs import deliver, read
from tests.store.scenarios import DEAD, WORK


@contextlib.asynccontextmanager
async def beside(place: Place) -> AsyncIterator[asyncpg.Connection]:
    """Another's connection to the same database."""
    connection = await asyncpg.connect(place.address)
    try:
        yield connection
    finally:
        await connection.close()


def insert_of(place: Place, table: str) -> str:
    """A copy of the newest row, with an id of its own."""
    columns = {
        "deliveries": "queue_id, partition_id, group_id, lease_no, leased_at, ended_at, first_seq, "
        "last_seq",
        "dead_letters": "queue_id, partition_id, partition_name, seq, group_name, is_item, "
        "transaction_id, payload, error, attempts, created_at, failed_at",
        "attempts": "queue_id, partition_id, seq, attempt, started_at, ended_at, outcome",
    }[table]
    return (
        f'insert into "{place.schema}".{table} ({columns}) select {columns} '
        f'from "{place.schema}".{table} order by id desc limit 1'
    )


async def one_row_each(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await deliver(store)
    await push(store, "q")
    await ack_all(store, await pop(store, "q"), DEAD)
    await push(store, "w")
    await ack_all(store, await pop(store, "w"))


@pytest.mark.parametrize("table", ["deliveries", "dead_letters", "attempts"])
@pytest.mark.parametrize("place", POSTGRES_NAMES, indirect=True)
async def test_a_row_that_is_committed_late_is_not_lost_behind_the_end(
    store: Store, place: Place, table: str
) -> None:
    await one_row_each(store)
    async with beside(place) as late, beside(place) as early:
        held = late.transaction()
        await held.start()
        await late.execute(insert_of(place, table))
        # It has a higher id, and is there first.
        await early.execute(insert_of(place, table))
        asked = asyncio.create_task(store.log_end(table))
        done, _ = await asyncio.wait([asked], timeout=0.3)
        assert not done, "an id below the end is not settled yet"
        await held.commit()
        end = await asked
        before = await read(store, table, None, end)
        after = await read(store, table, end, await store.log_end(table))
    ids = [row["id"] for row in before + after]
    assert ids == [row["id"] for row in await read(store, table)]
    assert len(set(ids)) == len(ids) >= 3
    assert len(before) == len(ids), "whatever has an id below the end is before it"


@pytest.mark.parametrize("place", POSTGRES_NAMES, indirect=True)
async def test_the_end_does_not_wait_for_readers_and_those_who_write_elsewhere(
    store: Store, place: Place
) -> None:
    await one_row_each(store)
    async with (
        beside(place) as other,
        beside(place) as reader,
        other.transaction(),
        reader.transaction(),
        asyncio.timeout(30),
    ):
        await other.execute(insert_of(place, "attempts"))
        await reader.fetch(f'select * from "{place.schema}".deliveries')
        end = await store.log_end("deliveries")
    assert len(await read(store, "deliveries", None, end)) == 2


@pytest.mark.parametrize("place", POSTGRES_NAMES[-1:], indirect=True)
async def test_rolled_back_ids_leave_a_hole_and_nothing_else(store: Store, place: Place) -> None:
    await one_row_each(store)
    async with beside(place) as other:
        held = other.transaction()
        await held.start()
        await other.execute(insert_of(place, "deliveries"))
        asked = asyncio.create_task(store.log_end("deliveries"))
        await held.rollback()
        end = await asked
    assert len(await read(store, "deliveries", None, end)) == 2
    await deliver(store)
    assert len(await read(store, "deliveries", end)) == 1


@pytest.mark.parametrize("place", POSTGRES_NAMES[-1:], indirect=True)
async def test_a_transaction_that_never_ends_is_an_error_and_not_a_gap(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "_PATIENCE_SECONDS", 0.2)
    await one_row_each(store)
    async with beside(place) as other:
        held = other.transaction()
        await held.start()
        await other.execute(insert_of(place, "deliveries"))
        with pytest.raises(StoreUnavailableError, match="deliveries"):
            await store.log_end("deliveries")
        await held.rollback()
    assert await store.log_end("deliveries")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["sqlite", *POSTGRES_NAMES], indirect=True)
async def test_a_reader_that_follows_concurrent_writers_gets_every_row_once(
    store: Store, open_another: OpenStore
) -> None:
    writers = [await open_another() for _ in range(3)]
    for number in range(len(writers)):
        await push(store, f"q{number}")
    stop = asyncio.Event()

    async def write(writer: Store, queue: str) -> None:
        for _ in range(40):
            await push(writer, queue)
            await ack_all(writer, await pop(writer, queue))

    async def follow() -> list[int]:
        seen: list[int] = []
        position = None
        while True:
            last_round = stop.is_set()
            end = await store.log_end("deliveries")
            seen += [row["id"] for row in await read(store, "deliveries", position, end)]
            position = end
            if last_round:
                return seen

    following = asyncio.create_task(follow())
    await asyncio.gather(*(write(w, f"q{number}") for number, w in enumerate(writers)))
    stop.set()
    seen = await following
    assert seen == [row["id"] for row in await read(store, "deliveries")]
    assert len(seen) == 120
