"""The connections of the PostgreSQL store: lent, broken, waited for, given up."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from monarq.model import Push, PushItem
from monarq.store import Store, open_store
from monarq.store.postgres import connections
from tests.store.calls import unwrap
from tests.store.waiting import wait_until

OURS = """datname = current_database() and pid <> pg_backend_pid()
    and backend_type = 'client backend'"""


@pytest.fixture
async def watcher(postgres_database: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_database)
    yield connection
    await connection.close()


async def push_at_once(store: Store, calls: int) -> list[int]:
    """So many calls together; the seqs that they got."""
    requests = [store.push([Push([PushItem("q", b"1")])]) for _ in range(calls)]
    return sorted(unwrap(outcomes)[0].seq for outcomes in await asyncio.gather(*requests))


async def test_connections_that_broke_while_nobody_used_them_are_replaced(
    postgres_database: str, watcher: asyncpg.Connection
) -> None:
    async with await open_store(postgres_database) as store:
        assert await push_at_once(store, 5) == [1, 2, 3, 4, 5]
        ended = await watcher.fetch(
            f"select pid, pg_terminate_backend(pid) from pg_stat_activity where {OURS}"
        )
        # By name: asyncpg's pool may connect anew at once, to have as many as it promised.
        pids = ",".join(str(row["pid"]) for row in ended)
        await wait_until(
            watcher, f"not exists (select from pg_stat_activity where pid in ({pids}))"
        )
        kept = store._database._connections._idle  # type: ignore[attr-defined]
        async with asyncio.timeout(30):
            while any(connections._is_open(each) for _, each in kept):  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert await push_at_once(store, 5) == [6, 7, 8, 9, 10]


async def test_more_calls_than_connections_all_have_their_turn(
    postgres_database: str, watcher: asyncpg.Connection
) -> None:
    async with await open_store(postgres_database, connections=2) as store:
        for _ in range(3):
            await push_at_once(store, 1)
            await push_at_once(store, 20)
        assert await push_at_once(store, 1) == [64]
        assert await watcher.fetchval(f"select count(*) from pg_stat_activity where {OURS}") <= 2


async def test_a_call_that_is_given_up_hurts_no_other(
    postgres_database: str, watcher: asyncpg.Connection
) -> None:
    """Given up while its statement waits for a lock, and while it waits for the connection."""
    waits = f"exists (select from pg_stat_activity where {OURS} and wait_event_type = 'Lock')"
    locker = await asyncpg.connect(postgres_database)
    async with await open_store(postgres_database, connections=1) as store:
        await push_at_once(store, 1)
        async with locker.transaction():
            await locker.execute("lock table monarq.partitions in access exclusive mode")
            calls = [asyncio.create_task(push_at_once(store, 1)) for _ in range(2)]
            await wait_until(watcher, waits)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            await wait_until(watcher, f"not {waits}")
        assert await push_at_once(store, 3) == [2, 3, 4]
    await locker.close()


async def test_connections_that_nobody_needs_are_let_go(
    postgres_database: str, watcher: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await open_store(postgres_database, connections=5) as store:
        await push_at_once(store, 20)
        monkeypatch.setattr(connections, "_IDLE_SECONDS", -1.0)
        pool = store._database._connections._pool  # type: ignore[attr-defined]
        for _ in range(5):
            await push_at_once(store, 1)
        assert pool.get_idle_size() >= 4
