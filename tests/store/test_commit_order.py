"""Commit order is seq order: a reader that follows a cursor never misses a message.

On PostgreSQL, where transactions commit in whatever order they like.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator

import asyncpg
import pytest

from monarq.clock import SystemClock
from monarq.model import Message, Push, PushItem, StartFrom
from monarq.store import Store, open_store
from tests.shared_postgres import POSTGRES_NAMES
from tests.store.calls import ack_all, pop, push, push_items, unwrap
from tests.store.conftest import Place

PATIENCE_SECONDS = 30

pytestmark = pytest.mark.parametrize("place", POSTGRES_NAMES[-1:], indirect=True)


@pytest.fixture
async def stores(place: Place) -> AsyncIterator[list[Store]]:
    """Three that know nothing of each other, in real time."""
    opened = [
        await open_store(place.address, clock=SystemClock(), schema=place.schema) for _ in range(3)
    ]
    yield opened
    for store in opened:
        await store.close()


@pytest.fixture
async def connections(place: Place) -> AsyncIterator[list[asyncpg.Connection]]:
    opened = [await asyncpg.connect(place.address) for _ in range(3)]
    yield opened
    for connection in opened:
        await connection.close()


@pytest.mark.parametrize("column", ["id", "created_at"])
async def test_a_cursor_over_a_sequence_or_a_time_loses_what_commits_late(
    place: Place, connections: list[asyncpg.Connection], column: str
) -> None:
    slow, quick, reader = connections
    table = f'"{place.schema}".naive_messages'
    await reader.execute(
        f"create table {table} (id bigserial primary key, name text, "
        "created_at timestamptz not null default clock_timestamp())"
    )
    insert = f"insert into {table} (name) values ($1)"
    late = slow.transaction()
    await late.start()
    await slow.execute(insert, "first")
    await quick.execute(insert, "second")
    rows = await reader.fetch(f"select * from {table} order by {column}")
    read = [row["name"] for row in rows]
    cursor = rows[-1][column]
    await late.commit()
    rows = await reader.fetch(f"select * from {table} where {column} > $1", cursor)
    read += [row["name"] for row in rows]
    assert read == ["second"], "the naive cursor was expected to lose the first message"


async def test_a_push_that_is_held_up_is_neither_overtaken_nor_lost(
    place: Place, stores: list[Store], connections: list[asyncpg.Connection]
) -> None:
    slow, quick, reader = stores
    blocker = connections[0]
    first, second = await push_items(slow, PushItem("q", b"0", "p1"), PushItem("q", b"0", "p2"))
    lowest, highest = sorted((first, second), key=lambda pushed: pushed.partition_id)
    names = {first.partition_id: "p1", second.partition_id: "p2"}
    free, held = names[lowest.partition_id], names[highest.partition_id]
    await reader.subscribe("g", StartFrom.NEW, queue="q")

    # The slow push gets its seq in one partition, and then waits for the other one.
    lock = blocker.transaction()
    await lock.start()
    await blocker.execute(
        f'select 1 from "{place.schema}".partitions where id = $1 for update',
        highest.partition_id,
    )
    delayed = asyncio.create_task(
        push_items(slow, PushItem("q", b"1", free), PushItem("q", b"1", held))
    )
    await wait_until_blocked(connections[1], 1)
    overtaking = asyncio.create_task(push(quick, "q", b"2", partition=free))
    await wait_until_blocked(connections[1], 2)
    assert (await pop(reader, "q", 10, group="g", partitions=2, auto_ack=True)).messages == []
    await lock.rollback()

    async with asyncio.timeout(PATIENCE_SECONDS):
        pushed = await delayed
        assert (await overtaking).seq == pushed[0].seq + 1 == 3
    popped = await pop(reader, "q", 10, group="g", partitions=2)
    read = [message.payload for message in popped.messages if message.partition == free]
    assert read == [b"1", b"2"]
    assert len(popped.messages) == 3


async def wait_until_blocked(connection: asyncpg.Connection, count: int) -> None:
    """Until so many others wait for a lock."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            waiting = await connection.fetchval(
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock' "
                "and datname = current_database() and query not ilike '%pg_stat_activity%'"
            )
            if waiting >= count:
                return
            await asyncio.sleep(0.01)


async def test_readers_see_every_message_once_and_in_order_while_many_push(
    stores: list[Store],
) -> None:
    partitions = [f"p{number}" for number in range(6)]
    pushers, rounds = 16, 30
    chance = random.Random(11)
    for group in ("all", "other"):
        await stores[0].subscribe(group, StartFrom.ALL, queue="q")

    async def keep_pushing(number: int) -> None:
        store = stores[number % len(stores)]
        for turn in range(rounds):
            chosen = chance.sample(partitions, 3)
            items = [PushItem("q", b"[%d,%d]" % (number, turn), name) for name in chosen]
            unwrap(await store.push([Push(items)]))

    read: dict[str, list[Message]] = defaultdict(list)
    total = pushers * rounds * 3

    async def keep_reading(group: str, store: Store) -> None:
        while len(read[group]) < total:
            popped = await pop(store, "q", 20, group=group, partitions=2, lease_seconds=60)
            read[group] += popped.messages
            if popped.messages:
                await ack_all(store, popped)
            else:
                await asyncio.sleep(0.005)

    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
        for number in range(pushers):
            tasks.create_task(keep_pushing(number))
        for group in ("all", "other"):
            for store in stores[:2]:
                tasks.create_task(keep_reading(group, store))

    for group in ("all", "other"):
        assert len(read[group]) == total
        by_partition: dict[str, list[Message]] = defaultdict(list)
        for message in read[group]:
            by_partition[message.partition].append(message)
        for messages in by_partition.values():
            assert [m.seq for m in messages] == list(range(1, len(messages) + 1))
            times = [m.created_at for m in messages]
            assert times == sorted(times)
