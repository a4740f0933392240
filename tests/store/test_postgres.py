"""What concerns the PostgreSQL store alone: outages, migrations, poolers, clocks."""

import asyncio
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import asyncpg
import pytest

from monarq.clock import SECOND, ManualClock
from monarq.errors import InvalidRequestError, StoreUnavailableError
from monarq.model import Ack, Pop, Push, Pushed, PushItem, QueueKind
from monarq.store import Store, open_store
from monarq.store.contract import Outcome
from tests.conftest import NewPostgresServer
from tests.postgres_server import OLDEST, fresh_database
from tests.store.calls import unwrap
from tests.store.waiting import wait_until

newest = pytest.mark.parametrize("place", ["postgres-newest"], indirect=True)


async def push_until_it_fails(
    store: Store, partition: str, answered: list[Pushed], enough: asyncio.Event
) -> None:
    for n in range(100_000):
        request = Push([PushItem("q", str(n).encode(), partition, f"{partition}-{n}")])
        try:
            answered += unwrap(await store.push([request]))
        except StoreUnavailableError:
            return
        if n == 40:
            enough.set()


@pytest.mark.slow
async def test_what_was_answered_is_there_after_the_server_was_killed(
    new_postgres_server: NewPostgresServer,
) -> None:
    server = await asyncio.to_thread(new_postgres_server, durable=True)
    async with await open_store(server.dsn) as store:
        answered: list[Pushed] = []
        # Each has its own: one whose connection is slow to open may have no answer yet when
        # the others have hundreds.
        enough = [asyncio.Event() for _ in range(5)]
        pushers = [
            asyncio.create_task(push_until_it_fails(store, f"p{n}", answered, enough[n]))
            for n in range(5)
        ]
        async with asyncio.timeout(60):
            await asyncio.gather(*(event.wait() for event in enough))
        await asyncio.to_thread(server.kill)
        await asyncio.gather(*pushers)
        with pytest.raises(StoreUnavailableError):
            await store.ping()
        await asyncio.to_thread(server.restart)
        await store.ping()
        kept: set[tuple[int, int, str]] = set()
        for part in await store.export_plan("q"):
            seqs: list[int] = []
            for segment in await store.export_read(part.partition_id, 1, part.last_seq):
                assert segment.transaction_ids is not None
                seqs += range(segment.first_seq, segment.first_seq + segment.count)
                kept |= {
                    (part.partition_id, segment.first_seq + n, str(name))
                    for n, name in enumerate(segment.transaction_ids)
                }
            assert seqs == list(range(1, part.last_seq + 1))
        lost = {(one.partition_id, one.seq, one.transaction_id) for one in answered} - kept
        assert not lost
        # Those without an answer may or may not be there: repeating them settles it.
        for n in range(5):
            again = unwrap(await store.push([Push([PushItem("q", b"0", f"p{n}", f"p{n}-0")])]))
            assert again[0].status == "duplicate"


async def test_a_server_that_does_not_answer_is_unavailable_not_a_hang(
    new_postgres_server: NewPostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await asyncio.to_thread(new_postgres_server)
    # With all its time: the tables are made, and a loaded machine is slow at that.
    await (await open_store(server.dsn)).close()
    monkeypatch.setattr("monarq.store.postgres.database.CALL_TIMEOUT", 2)
    async with await open_store(server.dsn) as store:
        await store.ping()
        server.pause()
        try:
            with pytest.raises(StoreUnavailableError):
                async with asyncio.timeout(30):
                    await store.push([Push([PushItem("q", b"1")])])
        finally:
            server.resume()
        assert unwrap(await store.push([Push([PushItem("q", b"1")])]))


async def test_where_nobody_writes_nothing_has_changed(
    new_postgres_server: NewPostgresServer,
) -> None:
    """On a server of its own: whoever writes to another database changes something too."""
    server = await asyncio.to_thread(new_postgres_server, OLDEST)
    async with await open_store(server.dsn) as store, await open_store(server.dsn) as other:
        await store.push([Push([PushItem("q", b"1")])])
        # The server may do something by itself at any time, but not all the time.
        for looks in (store.pop([Pop(queue="none")]), other.get_settings(), other.ping()):
            await looks
            quiet = [not await store.changed() for _ in range(10)]
            assert any(quiet[1:])
        await other.set_setting("a", "1")
        assert await store.changed()


async def test_what_becomes_visible_after_it_was_logged_is_a_change(
    new_postgres_server: NewPostgresServer,
) -> None:
    """A commit is in the log before others can see it. Whoever looks between, and finds nothing,
    has to be told once more."""
    # Waits for a standby that never comes, until it is cancelled: logged, and not visible.
    server = await asyncio.to_thread(
        new_postgres_server, settings={"synchronous_standby_names": "none"}
    )
    async with await open_store(f"{server.dsn}&options=-csynchronous_commit%3Dlocal") as store:
        await store.push([Push([PushItem("q", b"1")])])
        await store.pop([Pop(queue="q")])
        writer = await asyncpg.connect(server.dsn)
        await writer.execute("set synchronous_commit = on")
        writing = asyncio.create_task(
            writer.execute("insert into monarq.settings values ('late', '1')")
        )
        watcher = await asyncpg.connect(server.dsn)
        await wait_until(
            watcher, "exists (select from pg_stat_activity where wait_event = 'SyncRep')"
        )
        await store.changed()
        assert await store.get_settings() == {}
        await watcher.execute(
            "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'"
        )
        await writing
        assert await store.changed()
        assert await store.get_settings() == {"late": "1"}
        await watcher.close()
        await writer.close()


async def test_no_server_is_a_clear_error() -> None:
    with pytest.raises(StoreUnavailableError, match="PostgreSQL"):
        await open_store("postgresql://nobody@localhost:1/none")


@newest
async def test_many_that_open_at_once_migrate_once(
    place: object, postgres_servers: Mapping[str, str]
) -> None:
    schema = "test_at_once"
    dsn = postgres_servers["postgres-newest"]
    stores = await asyncio.gather(*(open_store(dsn, schema=schema) for _ in range(6)))
    try:
        for n, store in enumerate(stores):
            assert unwrap(await store.push([Push([PushItem("q", b"1")])]))[0].seq == n + 1
    finally:
        for store in stores:
            await store.close()
        connection = await asyncpg.connect(dsn)
        await connection.execute(f"drop schema {schema} cascade")
        await connection.close()


async def test_a_procedure_that_is_replaced_under_a_call_makes_the_store_unavailable(
    postgres_database: str,
) -> None:
    """As an upgrade does to brokers that run: their calls are for the buffer, or to be repeated."""
    held = "select pg_advisory_xact_lock(1), test.looks_around(), test.replaced()"
    async with await open_store(postgres_database) as store:
        database = store._database  # type: ignore[attr-defined]
        other = await asyncpg.connect(postgres_database)
        await other.execute("""
            create schema test;
            create function test.looks_around() returns bigint language plpgsql
                as $$ begin return (select count(*) from pg_class); end $$;
            create function test.replaced() returns void language plpgsql as $$ begin end $$;
            select pg_advisory_lock(1);
        """)
        call = asyncio.create_task(database.fetch(held))
        await wait_until(
            other, "exists (select from pg_locks where locktype = 'advisory' and not granted)"
        )
        await other.execute("drop function test.replaced()")
        await other.execute("select pg_advisory_unlock(1)")
        with pytest.raises(StoreUnavailableError, match="upgraded"):
            await call
        await other.close()


@pytest.mark.parametrize("schema", ["Weird", "a b", 'x"; drop schema public', "", "1a", "é"])
async def test_a_name_that_cannot_be_a_schema_is_refused(schema: str) -> None:
    with pytest.raises(InvalidRequestError):
        await open_store("postgresql://localhost/x", schema=schema)


async def test_the_servers_clock_decides_when_a_lease_ends(
    new_postgres_server: NewPostgresServer,
) -> None:
    """Two brokers whose clocks differ by an hour: neither takes over the other's lease."""

    class WrongClock(ManualClock):
        shared = True

    server = await asyncio.to_thread(new_postgres_server, OLDEST)
    ahead = WrongClock(ManualClock().now() + 3_600 * SECOND)
    async with (
        await open_store(server.dsn) as right,
        await open_store(server.dsn, clock=ahead) as wrong,
    ):
        await right.push([Push([PushItem("q", b"1")])])
        popped = unwrap(await right.pop([Pop(queue="q", lease_seconds=60)]))
        assert unwrap(await wrong.pop([Pop(queue="q")])).messages == []
        assert popped.lease_id is not None
        assert unwrap(await wrong.ack([Ack(lease_id=popped.lease_id)])).lease_released


@newest
async def test_behind_a_pooler_nothing_is_left_in_a_session(
    place: object, postgres_servers: Mapping[str, str]
) -> None:
    """A pooler gives every transaction another session; statements prepared in one are not
    there in the next."""
    dsn = postgres_servers["postgres-newest"]
    mark = "&" if "?" in dsn else "?"
    address = f"{dsn}{mark}prepared_statements=false"
    schema = place.schema  # type: ignore[attr-defined]
    async with await open_store(address, schema=schema) as store:
        await store.configure("w", kind=QueueKind.WORK)
        for queue in ("q", "w"):
            assert unwrap(await store.push([Push([PushItem(queue, b"1")])]))
            popped = unwrap(await store.pop([Pop(queue=queue)]))
            assert unwrap(await store.ack([Ack(lease_id=popped.lease_id)])).count == 1
        await store.lifecycle()
        left = await store._database.fetch(  # type: ignore[attr-defined]
            "select name from pg_prepared_statements where name <> ''"
        )
        assert left == []


@pytest.mark.parametrize("host", ["[::1", "localhost:abc", "localhost:99999"])
async def test_an_address_that_cannot_be_read_is_refused(host: str) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        await open_store(f"postgresql://{host}/x")


async def test_a_wrong_option_in_the_address_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="prepared_statements"):
        await open_store("postgresql://localhost/x?prepared_statements=maybe")


@newest
async def test_people_can_read_messages_with_sql(
    place: object, store: Store, postgres_servers: Mapping[str, str]
) -> None:
    items = [PushItem("q", b'{"n": 1}'), PushItem("q", '"ü"'.encode(), "p", "mine")]
    answers: list[Outcome[list[Pushed]]] = await store.push([Push(items)])
    pushed = unwrap(answers)
    connection = await asyncpg.connect(postgres_servers["postgres-newest"])
    try:
        rows = await connection.fetch(
            "select queue, partition, seq, transaction_id, payload::json::text as payload "
            f"from {place.schema}.messages order by partition_id, seq"  # type: ignore[attr-defined]
        )
    finally:
        await connection.close()
    assert [tuple(row) for row in rows] == [
        ("q", "Default", 1, pushed[0].message_id, '{"n": 1}'),
        ("q", "p", 1, "mine", '"ü"'),
    ]


async def test_calls_that_are_still_connecting_are_finished_before_it_is_closed(
    postgres_database: str,
) -> None:
    store = await open_store(postgres_database)
    calls = [asyncio.create_task(store.push([Push([PushItem("q", b"1")])])) for _ in range(8)]
    await asyncio.sleep(0)
    await store.close()
    assert [len(unwrap(await call)) for call in calls] == [1] * 8
    with pytest.raises(StoreUnavailableError):
        await store.ping()
    watcher = await asyncpg.connect(postgres_database)
    try:
        left = await watcher.fetchval(
            "select count(*) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid() and query ~ 'monarq'"
        )
    finally:
        await watcher.close()
    assert left == 0


async def test_a_database_that_can_only_be_read_says_so_and_can_be_looked_at(
    postgres_servers: Mapping[str, str],
) -> None:
    server = postgres_servers["postgres-newest"]
    async with fresh_database(server) as dsn, fresh_database(server) as empty:
        request = Push([PushItem("q", b"1")])
        async with await open_store(dsn) as store:
            await store.push([request])
            await store.pop([Pop(queue="q", lease_seconds=0.001)])
        await set_read_only(server, (dsn, empty), True)
        with pytest.raises(StoreUnavailableError, match="read-only"):
            await open_store(empty)
        async with await open_store(dsn) as store:
            for call in (store.push([request]), store.pop([Pop(queue="q")]), store.lifecycle()):
                with pytest.raises(StoreUnavailableError, match="read-only"):
                    await call
            [queue] = await store.describe_queues(["q"])
            assert queue.counts.pushed == 1
        await set_read_only(server, (dsn, empty), False)
        async with await open_store(dsn) as store:
            assert unwrap(await store.pop([Pop(queue="q")])).messages


async def set_read_only(server: str, databases: Sequence[str], is_on: bool) -> None:
    """As a standby is; for connections that are made from now on."""
    connection = await asyncpg.connect(server)
    try:
        for dsn in databases:
            name = urlsplit(dsn).path.removeprefix("/")
            await connection.execute(
                f'alter database "{name}" set default_transaction_read_only = {is_on}'
            )
    finally:
        await connection.close()
