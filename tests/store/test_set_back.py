"""A PostgreSQL that comes back as it was some time ago, under stores that go on: a restore, or a
standby that was behind. What they remember of queues, partitions and groups may be of what is no
more, and its numbers may be given again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import asyncpg
import pytest

from monarq.errors import QueueFullError, StoreUnavailableError
from monarq.model import Ack, Acked, AckStatus, Pop, Push, PushItem, QueueKind, StartFrom
from monarq.store import Store
from tests.store.calls import ack, ack_of, code_of, pop, push, push_items, unwrap
from tests.store.conftest import OpenStore, Place
from tests.store.waiting import wait_until

pytestmark = pytest.mark.parametrize("place", ["postgres-newest"], indirect=True)

WAITING = """
    exists (select from pg_stat_activity
        where wait_event_type = 'Lock' and query like '%complete_runs%')
"""
SetBack = Callable[[], Awaitable[None]]


@contextlib.asynccontextmanager
async def backup_of(place: Place) -> AsyncIterator[SetBack]:
    """All of the schema as it is now; gives what sets it back to that, behind a pooler's back:
    no connection notices."""
    connection = await asyncpg.connect(place.address)
    schema, copy = f'"{place.schema}"', f'"{place.schema}_copy"'
    try:
        tables = await names(connection, "tablename", "pg_tables", place.schema)
        sequences = await names(connection, "sequencename", "pg_sequences", place.schema)
        await connection.execute(f"create schema {copy}")
        for table in tables:
            await connection.execute(f"create table {copy}.{table} as table {schema}.{table}")
        counts = {
            sequence: await connection.fetchrow(
                f"select last_value, is_called from {schema}.{sequence}"
            )
            for sequence in sequences
        }

        async def set_back() -> None:
            async with connection.transaction():
                every = ", ".join(f"{schema}.{table}" for table in tables)
                await connection.execute(f"truncate {every}")
                for table in tables:
                    await connection.execute(
                        f"insert into {schema}.{table} overriding system value table {copy}.{table}"
                    )
                for sequence, count in counts.items():
                    await connection.execute(
                        f"select setval('{schema}.{sequence}', $1, $2)", *count
                    )

        yield set_back
        await connection.execute(f"drop schema {copy} cascade")
    finally:
        await connection.close()


async def names(
    connection: asyncpg.Connection, column: str, table: str, schema: str
) -> Sequence[str]:
    rows = await connection.fetch(
        f"select {column}::text as name from {table} where schemaname = $1", schema
    )
    return [row["name"] for row in rows]


async def payloads(store: Store, queue: str) -> dict[str, list[bytes]]:
    """What each partition of a queue holds."""
    found: dict[str, list[bytes]] = {}
    for message in (await store.list_messages(queue)).rows:
        found.setdefault(message.partition, []).append(message.payload)
    return found


async def test_a_group_that_is_no_more_gets_nothing_of_another_queue(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    await push(store, "orders", b"1")
    other = await open_another()
    await push(other, "secret", b"2")
    async with backup_of(place) as set_back:
        assert (await pop(store, "orders", group="mine")).messages
        await set_back()
        await pop(other, "secret", group="theirs", auto_ack=True)
        await push(other, "secret", b"3")
        got = await pop(store, "orders", group="mine")
        assert [(one.queue, one.payload) for one in got.messages] == [("orders", b"1")]
        left = await pop(other, "secret", group="theirs")
        assert [one.payload for one in left.messages] == [b"3"]


@pytest.mark.parametrize("queue", ["orders", "other"])
async def test_a_push_to_a_partition_that_is_no_more_reaches_no_other(
    store: Store, open_another: OpenStore, place: Place, queue: str
) -> None:
    await push(store, "orders", b"0", partition="old")
    other = await open_another()
    await push(other, "other", b"0", partition="old")
    async with backup_of(place) as set_back:
        for n in range(2):  # the second time it is remembered
            await push(store, "orders", b"lost", partition="mine", transaction_id=f"lost-{n}")
        await set_back()
        await push(other, queue, b"theirs", partition="theirs")
        await push(store, "orders", b"mine", partition="mine")
        assert (await payloads(other, queue))["theirs"] == [b"theirs"]
        assert (await payloads(other, "orders"))["mine"] == [b"mine"]


@pytest.mark.parametrize("kind", QueueKind)
async def test_a_push_to_a_queue_that_is_no_more_reaches_no_other(
    store: Store, open_another: OpenStore, place: Place, kind: QueueKind
) -> None:
    await store.configure("base")
    other = await open_another()
    async with backup_of(place) as set_back:
        await store.configure("mine", kind=kind)
        for _ in range(2):
            await push(store, "mine", b"lost")
        await set_back()
        await other.configure("theirs", kind=kind)
        await push(other, "theirs", b"theirs")
        await push(store, "mine", b"mine")
        for queue in ("theirs", "mine"):
            got = await pop(other, queue, batch=5)
            assert [one.payload for one in got.messages] == [queue.encode()]


async def test_options_that_were_lost_are_not_taken_for_those_that_were_set_instead(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    await push(store, "q", b"1")
    other = await open_another()
    async with backup_of(place) as set_back:
        await store.configure("q", options={"max_size": 0, "retention_seconds": 60.0})
        await push(store, "q", b"lost")
        await set_back()
        await other.configure("q", options={"max_size": 2})
        await push(store, "q", b"2")
        with pytest.raises(QueueFullError):
            await push(store, "q", b"3")


async def test_items_of_another_queue_are_not_popped_for_one_that_is_no_more(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    other = await open_another()
    async with backup_of(place) as set_back:
        await store.configure("mine", kind=QueueKind.WORK)
        await push(store, "mine", b"lost")
        assert (await pop(store, "mine")).messages
        await set_back()
        await other.configure("theirs", kind=QueueKind.WORK)
        await push(other, "theirs", b"theirs")
        assert not (await pop(store, "mine")).messages
        assert [one.payload for one in (await pop(other, "theirs")).messages] == [b"theirs"]


async def test_what_was_popped_before_is_not_taken_for_what_is_popped_under_the_same_number(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    await push(store, "q", b"0")
    await store.subscribe("g", StartFrom.NEW, queue="q")
    other = await open_another()
    async with backup_of(place) as set_back:
        await push_items(store, *(PushItem("q", b"1", transaction_id=name) for name in "ab"))
        assert (await pop(store, "q", 2, group="g")).messages
        await set_back()
        # Its sender repeats what was lost, not quite as it was.
        await push_items(other, *(PushItem("q", b"1", transaction_id=name) for name in "cabd"))
        popped = await pop(store, "q", 4, group="g")
        acks = [ack_of(each, popped.lease_id, group="g") for each in popped.messages[1:3]]
        assert [code_of(answer) for answer in await store.ack(acks)] == [None, None]
        assert popped.lease_id is not None
        await store.ack([Ack(lease_id=popped.lease_id, status=AckStatus.RELEASE, group="g")])
        left = await pop(store, "q", 4, group="g")
        assert [each.transaction_id for each in left.messages] == ["c", "d"]


async def test_acks_are_of_items_where_a_partition_of_messages_was(
    store: Store, open_another: OpenStore, place: Place
) -> None:
    other = await open_another()
    async with backup_of(place) as set_back:
        await push(store, "messages", b"1")
        assert (await pop(store, "messages")).messages
        await set_back()
        await other.configure("items", kind=QueueKind.WORK)
        await push(other, "items", b"1")
        popped = await pop(store, "items")
        [item] = popped.messages
        assert (await ack(store, item, popped.lease_id)).queue == "items"


async def test_an_ack_under_way_is_answered_though_all_that_was_known_is_forgotten(
    store: Store, place: Place
) -> None:
    await push_items(store, *(PushItem("q", b"1", transaction_id=name) for name in "ab"))
    popped = await pop(store, "q", 2)
    acks = [ack_of(each, popped.lease_id) for each in popped.messages]
    connection = await asyncpg.connect(place.address)
    try:
        async with connection.transaction():
            await connection.execute(f'select from "{place.schema}".cursors for update')
            answering = asyncio.ensure_future(store.ack(acks))
            await wait_until(connection, WAITING)
            await store.ping()
        answers = await answering
    finally:
        await connection.close()
    assert [answer.queue for answer in answers if isinstance(answer, Acked)] == ["q", "q"]


async def test_while_a_schema_is_away_the_store_is_unavailable_and_then_goes_on(
    store: Store, place: Place
) -> None:
    await push(store, "q", b"1")
    connection = await asyncpg.connect(place.address)
    try:
        await connection.execute(f'alter schema "{place.schema}" rename to "{place.schema}_away"')
        request = Push([PushItem("q", b"2")])
        for call in (
            store.push([request]),
            store.push([request, request], mark="m"),
            store.pop([Pop(queue="q")]),
            store.lifecycle(),
            store.ping(),
            store.list_queues(),
        ):
            with pytest.raises(StoreUnavailableError, match="schema"):
                await call
        await connection.execute(f'alter schema "{place.schema}_away" rename to "{place.schema}"')
    finally:
        await connection.close()
    unwrap(await store.push([Push([PushItem("q", b"2")])]))
    assert [one.payload for one in (await pop(store, "q", batch=5)).messages] == [b"1", b"2"]
