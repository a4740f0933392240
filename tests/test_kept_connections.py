"""Stores of tests share connections, and nothing else of one test reaches the next."""

import asyncio
from typing import Any

import pytest

from monarq.errors import StoreUnavailableError
from monarq.store import Store, open_store
from tests.kept_connections import KeptConnections

left: list[asyncio.Task[Any]] = []


async def process_of(store: Store) -> int:
    """The server process of its connection."""
    database = store._database  # type: ignore[attr-defined]
    return int(await database.fetchval("select pg_backend_pid()"))


async def test_a_store_has_the_connection_of_an_earlier_one(postgres_database: str) -> None:
    kept = KeptConnections()
    processes = []
    for _ in range(2):
        async with await kept.open_store(postgres_database) as store:
            processes.append(await process_of(store))
    async with await open_store(postgres_database) as store:
        own = await process_of(store)
    await kept.close()
    assert processes[0] == processes[1] != own


async def test_two_stores_at_once_have_different_connections(postgres_database: str) -> None:
    kept = KeptConnections()
    async with (
        await kept.open_store(postgres_database) as one,
        await kept.open_store(postgres_database) as other,
    ):
        assert await process_of(one) != await process_of(other)
    await kept.close()


async def test_a_store_that_was_closed_has_no_connection_any_more(postgres_database: str) -> None:
    kept = KeptConnections()
    store = await kept.open_store(postgres_database)
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailableError):
        await store.ping()
    await kept.close()


@pytest.mark.parametrize("turn", [1, 2])
async def test_a_task_ends_with_its_test(turn: int) -> None:
    assert all(task.cancelled() for task in left)
    left.append(asyncio.create_task(asyncio.Event().wait()))
    await asyncio.sleep(0)
