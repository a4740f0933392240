"""How much the hot calls read in PostgreSQL when there is very much: no table is scanned, and
what is read depends on what is asked for, not on what is there.

Plans are what goes wrong: a procedure keeps the plan that it made when its tables were empty.
So each call is watched in three sessions: one that ran everything on small tables before they
grew, a fresh one on tables of which no statistics exist, and one after ANALYZE.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import asyncpg
import pytest
import pytest_asyncio

from monarq.clock import SystemClock
from monarq.errors import MonarqError
from monarq.model import (
    Ack,
    AckStatus,
    ItemState,
    Pop,
    Popped,
    Push,
    PushItem,
    QueueKind,
    Renew,
    Transaction,
)
from monarq.store import Store
from monarq.store.contract import Outcome
from monarq.store.postgres import PostgresStore
from monarq.store.postgres.database import Database
from tests.postgres_server import fresh_database
from tests.shared_postgres import POSTGRES_NAMES

T = TypeVar("T")

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

PARTITIONS = 100_000
ITEMS = 200_000
GROUPS = 1_000
LEASES = 10_000
LOGS = 50_000
QUEUES = 2_000
SEGMENTS = 20_000

#: Tables that nobody may read through.
BIG = {
    "attempts",
    "counters",
    "cursors",
    "dead_letters",
    "deliveries",
    "groups",
    "items",
    "partitions",
    "queues",
    "segments",
    "transaction_ids",
    "unresolved",
}

#: What a call may read for each message that it is about, in tables and indexes together.
READS_A_MESSAGE = 60
READS_A_CALL = 200


# --- much of everything ----------------------------------------------------------------------

GROW = f"""
    insert into monarq.queues overriding system value
    select (jsonb_populate_record(null::monarq.queues, to_jsonb(q) || jsonb_build_object(
        'id', 1000000 + n, 'name', 'other' || n, 'namespace', 'others', 'task', 'o' || n))).*
    from monarq.queues q, generate_series(1, {QUEUES}) n where q.name = 'wide';

    insert into monarq.partitions (queue_id, name, last_seq, last_at, check_at)
    select q.id, 'deep', {SEGMENTS}, 1, 0 from monarq.queues q where q.name = 'deep';
    insert into monarq.segments (partition_id, first_seq, count, created_at, data, offsets,
        transaction_ids)
    select p.id, n, 1, 1, '{{}}'::bytea, monarq.single_offsets(2), array['t' || n]
    from monarq.partitions p, generate_series(1, {SEGMENTS}) n where p.name = 'deep';
    insert into monarq.cursors (partition_id, group_id, position, available_at)
    select p.id, g.id, 0, 1 from monarq.partitions p
    join monarq.groups g on g.queue_id = p.queue_id where p.name = 'deep';

    insert into monarq.partitions (queue_id, name, last_seq, last_at, check_at)
    select q.id, 'p' || n, 1, 1, monarq.time(null) + 86400 * 1000000::bigint
    from monarq.queues q, generate_series(1, {PARTITIONS}) n where q.name = 'wide'
    on conflict do nothing;

    insert into monarq.segments (partition_id, first_seq, count, created_at, data, offsets,
        transaction_ids)
    select p.id, 1, 1, monarq.time(null), '{{}}'::bytea, monarq.single_offsets(2),
        array['t' || p.id]
    from monarq.partitions p join monarq.queues q on q.id = p.queue_id
    where q.name = 'wide' and not exists (
        select from monarq.segments s where s.partition_id = p.id);

    insert into monarq.transaction_ids (partition_id, transaction_id, seq)
    select partition_id, transaction_ids[1], 1 from monarq.segments
    where transaction_ids[1] is not null on conflict do nothing;

    insert into monarq.cursors (partition_id, group_id, position, available_at, lease_no,
        lease_token, lease_until, leased_at, lease_to, lease_left)
    select p.id, g.id, 0, case when leased then monarq.time(null) + 3600 * 1000000::bigint
            else 1000 + p.id end,
        case when leased then nextval('monarq.lease_numbers') end,
        case when leased then 'token' end,
        case when leased then monarq.time(null) + 3600 * 1000000::bigint end,
        case when leased then 1 end, case when leased then 1 end,
        case when leased then 1 else 0 end
    from monarq.partitions p join monarq.queues q on q.id = p.queue_id
    join monarq.groups g on g.queue_id = q.id
    cross join lateral (select p.id % {PARTITIONS // LEASES} = 0 as leased) as l
    where q.name = 'wide' on conflict do nothing;

    insert into monarq.groups (queue_id, name, start_at, created_at)
    select q.id, 'g' || n, 0, 1 from monarq.queues q, generate_series(1, {GROUPS}) n
    where q.name = 'shared' on conflict do nothing;

    insert into monarq.cursors (partition_id, group_id, position, available_at)
    select p.id, g.id, p.first_seq - 1, 1 from monarq.partitions p
    join monarq.queues q on q.id = p.queue_id join monarq.groups g on g.queue_id = q.id
    where q.name = 'shared' on conflict do nothing;

    insert into monarq.counters (queue_id, group_id, shard, position)
    select g.queue_id, g.id, n, 0 from monarq.groups g, generate_series(0, 3) n
    on conflict do nothing;

    insert into monarq.items (partition_id, seq, queue_id, state, priority, rank, turn, due_at,
        max_attempts, backoff_base, lease_no, lease_token, leased_at, created_at, finished_at,
        payload)
    select p.id, p.last_seq + n, q.id, s.state, 0, p.last_seq + n, p.turns + n,
        case when s.state in ('scheduled', 'leased')
            then monarq.time(null) + 3600 * 1000000::bigint + n end,
        3, 2, case when s.state = 'leased' then nextval('monarq.lease_numbers') end,
        case when s.state = 'leased' then 'token' end, case when s.state = 'leased' then 1 end,
        monarq.time(null), case when s.state = 'done' then monarq.time(null) end, '{{}}'::bytea
    from monarq.queues q join monarq.partitions p on p.queue_id = q.id
    cross join generate_series(1, {ITEMS}) n
    cross join lateral (select case n % 50 when 0 then 'scheduled' when 1 then 'leased'
        when 2 then 'done' else 'ready' end as state) as s
    where q.name = 'jobs';
    update monarq.partitions p set last_seq = last_seq + {ITEMS}, turns = turns + {ITEMS}
    from monarq.queues q where q.id = p.queue_id and q.name = 'jobs';

    insert into monarq.items (partition_id, seq, queue_id, state, priority, rank, turn,
        max_attempts, backoff_base, created_at, finished_at, payload)
    select p.id, p.last_seq + n, q.id, case when n > {ITEMS} then 'ready' else 'done' end,
        5 + n % 2, p.last_seq + n - 5 - n % 2, p.turns + n, 3, 2, monarq.time(null),
        case when n <= {ITEMS} then monarq.time(null) end, '{{}}'::bytea
    from monarq.queues q join monarq.partitions p on p.queue_id = q.id
    cross join generate_series(1, {ITEMS} + 20) n where q.name = 'worked';
    update monarq.partitions p set last_seq = last_seq + {ITEMS} + 20
    from monarq.queues q where q.id = p.queue_id and q.name = 'worked';

    insert into monarq.deliveries (queue_id, partition_id, group_id, lease_no, leased_at, ended_at,
        first_seq, last_seq)
    select 1, n, 1, n, 1, monarq.time(null), 1, 1 from generate_series(1, {LOGS}) n;
    insert into monarq.attempts (queue_id, partition_id, seq, attempt, started_at, ended_at,
        outcome)
    select 1, 1, n, 1, 1, monarq.time(null), 'completed' from generate_series(1, {LOGS}) n;
    insert into monarq.dead_letters (queue_id, partition_id, partition_name, seq, group_name,
        is_item, transaction_id, payload, error, attempts, created_at, failed_at)
    select 1, n, '', 1, '', false, n, '', '', 1, 1, 1 from generate_series(1, {LOGS}) n;
"""

NO_STATISTICS = """
    do $$
    declare name text;
    begin
        for name in select relname from pg_class where relnamespace = 'monarq'::regnamespace
            and relkind = 'r' loop
            execute format('alter table monarq.%I set (autovacuum_enabled = off)', name);
        end loop;
    end $$
"""


class Session:
    """A store with a connection of its own, and what its calls read."""

    def __init__(self, store: PostgresStore, database: Database) -> None:
        self.store = store
        self.watched = True
        self._database = database

    @contextlib.asynccontextmanager
    async def reads(
        self, messages: int, besides: frozenset[str] | set[str] = frozenset()
    ) -> AsyncIterator[None]:
        """What happens inside reads no big table from end to end, and no more than this many
        messages need; not counting the tables `besides`."""
        if not self.watched:
            yield
            return
        scans, rows = await self._counts()
        yield
        scans_after, rows_after = await self._counts()
        scanned = scans_after - scans
        read = rows_after - rows
        for table in besides:
            del scanned[table], read[table]
        assert not scanned, f"scanned: {dict(scanned)}; rows read: {dict(read)}"
        bound = READS_A_CALL + READS_A_MESSAGE * messages
        assert read.total() <= bound, f"read more than {bound} rows: {dict(read)}"

    async def hand_in(self) -> None:
        """Counts reach the others when a session is idle for a while, or is told to do so."""
        await self._database.fetch("select pg_stat_force_next_flush()")

    async def _counts(self) -> tuple[Counter[str], Counter[str]]:
        """Sequential scans, and rows read (index entries too), by table."""
        await self.hand_in()
        tables = await self._database.fetch(
            "select relname, seq_scan, seq_tup_read, coalesce(idx_tup_fetch, 0) as fetched, "
            "(select coalesce(sum(idx_tup_read), 0)::bigint from pg_stat_user_indexes i "
            "where i.relid = t.relid) as entries "
            "from pg_stat_user_tables t where schemaname = 'monarq' and relname = any($1)",
            list(BIG),
        )
        return (
            Counter({row["relname"]: row["seq_scan"] for row in tables}),
            Counter(
                {
                    row["relname"]: row["seq_tup_read"] + row["fetched"] + row["entries"]
                    for row in tables
                }
            ),
        )


Call = Callable[[Session], Awaitable[None]]
CALLS: list[Call] = []


def hot(call: Call) -> Call:
    CALLS.append(call)
    return call


@contextlib.asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[Session]:
    database = await Database.connect(dsn, clock=SystemClock(), schema="monarq", connections=1)
    async with PostgresStore(database, None) as store:
        yield Session(store, database)


class Big:
    """The database of the module's tests on one server, and the session that saw it grow."""

    def __init__(self, dsn: str, old: Session) -> None:
        self.dsn = dsn
        self.old = old


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=POSTGRES_NAMES)
async def big(
    request: pytest.FixtureRequest, postgres_servers: Mapping[str, str]
) -> AsyncIterator[Big]:
    async with (
        fresh_database(postgres_servers[request.param]) as dsn,
        opened(dsn) as session,
    ):
        connection = await asyncpg.connect(dsn)
        await connection.execute(NO_STATISTICS)
        await _found(session.store)
        # An empty table that was vacuumed is known to be empty, the worst of all estimates.
        await connection.execute("vacuum analyze")
        await _supply(session.store)
        session.watched = False
        # PostgreSQL settles for one plan after five runs.
        for _ in range(6):
            for call in CALLS:
                await call(session)
        await connection.execute(GROW)
        await connection.close()
        session.watched = True
        yield Big(dsn, session)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["grown", "fresh", "analyzed"])
async def session(request: pytest.FixtureRequest, big: Big) -> AsyncIterator[Session]:
    if request.param == "grown":
        yield big.old
        # Handed in later, they would be counted as those of the next session.
        await big.old.hand_in()
        return
    if request.param == "analyzed":
        connection = await asyncpg.connect(big.dsn)
        await connection.execute("analyze")
        await connection.close()
    async with opened(big.dsn) as session:
        yield session


async def _found(store: Store) -> None:
    """The queues and groups, before there is anything in them."""
    await store.configure("jobs", kind=QueueKind.WORK)
    await store.configure("worked", kind=QueueKind.WORK)
    await store.configure("deep", options={"retention_seconds": 0.001})
    for queue in ("wide", "shared", "deep"):
        await store.configure(queue)
        await store.subscribe("g", 0, queue=queue)
    for number in range(20):
        await store.configure(f"labelled-{number}", namespace="labels", task=f"t{number}")
        await store.subscribe("g", 0, queue=f"labelled-{number}")
    await store.subscribe("g", 0, namespace="labels")


async def _supply(store: Store) -> None:
    """Enough for calls on the small tables."""
    for number in range(200):
        items = [PushItem("wide", b"1", f"p{number}") for _ in range(3)]
        items += [PushItem("shared", b"1", f"p{number % 5}")]
        items += [PushItem(f"labelled-{number % 20}", b"1")]
        items += [PushItem("deep", b"1", "shallow", f"t{number}")]
        good(await store.push([Push(items)]))
        good(await store.push([Push([PushItem("jobs", b"1")] * 10)]))
    good(await store.push([Push([PushItem("worked", b"1", priority=5 + n % 2) for n in range(8)])]))


async def test_every_hot_call_reads_only_what_it_is_asked_for(session: Session, call: Call) -> None:
    await call(session)


@pytest.mark.parametrize("server", POSTGRES_NAMES)
async def test_acks_read_only_their_items_though_none_was_leased_when_statistics_were_made(
    server: str, postgres_servers: Mapping[str, str]
) -> None:
    async with fresh_database(postgres_servers[server]) as dsn, opened(dsn) as session:
        await session.store.configure("jobs", kind=QueueKind.WORK)
        good(await session.store.push([Push([PushItem("jobs", b"1")] * 5_000)]))
        answers = await popped(session, [Pop(queue="jobs", batch=1_000)])
        good(await session.store.ack(acks(answers)))
        connection = await asyncpg.connect(dsn)
        await connection.execute("vacuum analyze")
        await connection.close()
        answers = await popped(session, [Pop(queue="jobs", batch=4_000)])
        async with session.reads(10):
            good(await session.store.ack(acks(answers)[:10]))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "call" in metafunc.fixturenames:
        metafunc.parametrize("call", CALLS, ids=lambda call: call.__name__)


# --- the hot calls ---------------------------------------------------------------------------

_numbers = iter(range(10**9))


def fresh_id() -> str:
    return f"id {next(_numbers)}"


def good(outcomes: Sequence[Outcome[T]]) -> list[T]:
    for outcome in outcomes:
        if isinstance(outcome, MonarqError):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, MonarqError)]


async def popped(session: Session, pops: list[Pop]) -> list[Popped]:
    answers = good(await session.store.pop(pops))
    assert all(answer.messages for answer in answers)
    return answers


def acks(answers: list[Popped], status: AckStatus = AckStatus.COMPLETED) -> list[Ack]:
    """One for each message, under its transaction id."""
    return [
        Ack(
            transaction_id=message.transaction_id,
            partition_id=message.partition_id,
            lease_id=answer.lease_id,
            group="g",
            status=status,
        )
        for answer in answers
        for message in answer.messages
    ]


@hot
async def push_one(session: Session) -> None:
    request = Push([PushItem("wide", b"1", "p7")])
    await session.store.push([request])  # finds the queue and the partition, once
    async with session.reads(1):
        good(await session.store.push([request]))


@hot
async def push_to_many_partitions(session: Session) -> None:
    request = Push([PushItem("wide", b"1", f"p{n}") for n in range(1, 51)])
    async with session.reads(50):
        good(await session.store.push([request]))


@hot
async def push_with_ids(session: Session) -> None:
    request = Push([PushItem("wide", b"1", f"p{n % 9}", fresh_id()) for n in range(9, 59)])
    async with session.reads(50):
        good(await session.store.push([request]))


@hot
async def push_to_partitions_not_seen_before(session: Session) -> None:
    request = Push([PushItem("wide", b"1", f"p{200 + next(_numbers)}") for _ in range(5)])
    async with session.reads(5):
        good(await session.store.push([request]))


@hot
async def push_to_a_queue_with_a_limit(session: Session) -> None:
    await session.store.configure("limited", options={"max_size": 10**6})
    request = Push([PushItem("limited", b"1")])
    await session.store.push([request])
    async with session.reads(1):
        good(await session.store.push([request]))


@hot
async def push_duplicates(session: Session) -> None:
    request = Push([PushItem("wide", b"1", "p3", fresh_id()) for _ in range(5)])
    good(await session.store.push([request]))
    async with session.reads(10):
        good(await session.store.push([request]))


@hot
async def pop_and_ack_one(session: Session) -> None:
    request = Pop(queue="wide", group="g")
    good(await session.store.ack(acks(await popped(session, [request]))))
    async with session.reads(1):
        answers = await popped(session, [request])
    async with session.reads(1):
        good(await session.store.ack(acks(answers)))


@hot
async def pop_and_ack_many(session: Session) -> None:
    requests = [Pop(queue="wide", group="g")] * 10
    async with session.reads(10):
        answers = await popped(session, requests)
    async with session.reads(10):
        good(await session.store.ack(acks(answers)))


@hot
async def ack_whole_leases(session: Session) -> None:
    answers = await popped(session, [Pop(queue="wide", group="g", batch=3)] * 5)
    async with session.reads(15):
        good(await session.store.ack([Ack(lease_id=a.lease_id, group="g") for a in answers]))


@hot
async def pop_a_named_partition(session: Session) -> None:
    good(await session.store.push([Push([PushItem("wide", b"1", "p5")])]))
    async with session.reads(1):
        [answer] = good(
            await session.store.pop([Pop(queue="wide", group="g", partition="p5", batch=5)])
        )
    if answer.messages:
        async with session.reads(5):
            good(await session.store.ack([Ack(lease_id=answer.lease_id, group="g")]))


@hot
async def pop_several_partitions_at_once(session: Session) -> None:
    async with session.reads(10):
        answers = await popped(session, [Pop(queue="wide", group="g", batch=10, partitions=10)])
    async with session.reads(10):
        good(await session.store.ack(acks(answers)))


@hot
async def pop_with_auto_ack(session: Session) -> None:
    async with session.reads(2):
        await popped(session, [Pop(queue="wide", group="g", batch=2, auto_ack=True)])


@hot
async def pop_by_label(session: Session) -> None:
    # Asks for the label's queues each time, which is one read or two a queue.
    async with session.reads(20):
        [answer] = good(await session.store.pop([Pop(namespace="labels", group="g")]))
    assert answer.messages
    good(await session.store.ack(acks([answer])))
    refill = [PushItem(f"labelled-{n}", b"1") for n in range(20)]
    good(await session.store.push([Push(refill)]))


@hot
async def pop_from_a_queue_with_many_groups(session: Session) -> None:
    good(await session.store.push([Push([PushItem("shared", b"1", f"p{n}") for n in range(5)])]))
    async with session.reads(1):
        answers = await popped(session, [Pop(queue="shared", group="g")])
    async with session.reads(1):
        good(await session.store.ack(acks(answers)))


@hot
async def fail_and_pop_again(session: Session) -> None:
    answers = await popped(session, [Pop(queue="wide", group="g", batch=2)] * 3)
    async with session.reads(6):
        good(await session.store.ack(acks(answers, AckStatus.FAILED)))
    async with session.reads(3):
        good(await session.store.ack(acks(await popped(session, [Pop(queue="wide", group="g")]))))


@hot
async def bury_and_release(session: Session) -> None:
    for status in (AckStatus.DEAD, AckStatus.RELEASE):
        answers = await popped(session, [Pop(queue="wide", group="g")])
        async with session.reads(1):
            good(await session.store.ack(acks(answers, status)))


@hot
async def renew_leases(session: Session) -> None:
    answers = await popped(session, [Pop(queue="wide", group="g")] * 3)
    async with session.reads(3):
        good(await session.store.renew([Renew(a.lease_id or "", 60.0) for a in answers]))
    good(await session.store.ack(acks(answers)))


@hot
async def transact(session: Session) -> None:
    answers = await popped(session, [Pop(queue="wide", group="g")])
    request = Transaction(
        [Push([PushItem("wide", b"1", "p9", fresh_id())]), *acks(answers)],
        [answers[0].lease_id or ""],
    )
    async with session.reads(2):
        good(await session.store.transaction([request]))


@hot
async def push_and_work_items(session: Session) -> None:
    request = Push([PushItem("jobs", b"1", transaction_id=fresh_id()) for _ in range(20)])
    await session.store.push([Push([PushItem("jobs", b"1")])])
    async with session.reads(20):
        good(await session.store.push([request]))
    for status in (AckStatus.COMPLETED, AckStatus.FAILED, AckStatus.RETRY, AckStatus.RELEASE):
        async with session.reads(4):
            answers = await popped(session, [Pop(queue="jobs", batch=4)])
        async with session.reads(4):
            good(await session.store.ack(acks(answers, status)))
    answers = await popped(session, [Pop(queue="jobs", batch=4)])
    async with session.reads(4):
        good(await session.store.renew([Renew(answers[0].lease_id or "", 60.0)]))
    async with session.reads(4):
        good(await session.store.ack([Ack(lease_id=answers[0].lease_id)]))


@hot
async def step_of_the_lifecycle(session: Session) -> None:
    expired = [Pop(queue="wide", group="g", lease_seconds=0.001)] * 3
    await popped(session, expired)
    await popped(session, [Pop(queue="jobs", batch=3, lease_seconds=0.001)])
    # Makes it look at the queue's partition.
    keep = {"completed_retention_seconds": 86_400.0 + next(_numbers)}
    await session.store.configure("jobs", options=keep)
    limit = 20
    # Each of its parts may read as far as its limit. Once a minute it goes through all queues.
    async with session.reads(10 * limit, besides={"queues", "counters"}):
        report = await session.store.lifecycle(limit=limit)
    assert report.expired == 6
    assert report.removed >= limit


@hot
async def look_at_one_queue(session: Session) -> None:
    for queue in ("wide", "jobs"):
        async with session.reads(10):
            await session.store.queue_stats(queue=queue)


@hot
async def look_at_a_page_of_queues(session: Session) -> None:
    async with session.reads(20):
        page = await session.store.queue_stats(limit=20)
    names = [stats.queue for stats in page.rows]
    async with session.reads(20):
        await session.store.stats_of(names)


@hot
async def look_at_a_page_of_items(session: Session) -> None:
    # And the name of their queue.
    for state in (None, ItemState.READY):
        async with session.reads(20, besides={"queues"}):
            page = await session.store.list_items("jobs", state=state, limit=10)
            await session.store.list_items("jobs", state=state, limit=10, after=page.next)
        async with session.reads(20, besides={"queues"}):
            page = await session.store.newest_items("jobs", state=state, limit=10)
            await session.store.newest_items("jobs", state=state, limit=10, after=page.next)
    async with session.reads(10, besides={"queues"}):
        await session.store.next_items("jobs", limit=10)
    async with session.reads(10, besides={"queues"}):
        await session.store.find_item("jobs", page.rows[0].transaction_id)


@hot
async def look_at_ready_items_before_and_behind_many_that_are_done(session: Session) -> None:
    for read in (session.store.list_items, session.store.newest_items):
        async with session.reads(40, besides={"queues"}):
            page = await read("worked", state=ItemState.READY, limit=20)
            await read("worked", state=ItemState.READY, limit=20, after=page.next)


@hot
async def look_at_one_group(session: Session) -> None:
    # Its lag in seconds takes a look at each partition that it has to consume.
    async with session.reads(20):
        await session.store.list_groups(queue="shared", group="g")
    async with session.reads(30 * 20):
        page = await session.store.list_groups(queue="shared", limit=20)
    assert session.watched is False or len(page.rows) == 20
