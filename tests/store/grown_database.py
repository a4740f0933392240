"""A database that grows to very much of everything, and sessions whose reads are counted."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

from monarq.clock import SystemClock
from monarq.errors import MonarqError
from monarq.model import Push, PushItem, QueueKind
from monarq.store import Store
from monarq.store.contract import Outcome
from monarq.store.postgres import PostgresStore
from monarq.store.postgres.database import Database

T = TypeVar("T")

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


async def make_queues(store: Store) -> None:
    """The queues and groups, before there is anything in them."""
    await store.configure("jobs", kind=QueueKind.WORK)
    await store.configure("worked", kind=QueueKind.WORK)
    await store.configure("deep", options={"retention_seconds": 0.001})
    for queue in ("wide", "shared", "deep", "passed"):
        await store.configure(queue)
        await store.subscribe("g", 0, queue=queue)
    for number in range(20):
        await store.configure(f"labelled-{number}", namespace="labels", task=f"t{number}")
        await store.subscribe("g", 0, queue=f"labelled-{number}")
    await store.subscribe("g", 0, namespace="labels")


async def supply(store: Store) -> None:
    """Enough for calls on the small tables."""
    for number in range(200):
        items = [PushItem("wide", b"1", f"p{number}") for _ in range(3)]
        items += [PushItem("shared", b"1", f"p{number % 5}")]
        items += [PushItem(f"labelled-{number % 20}", b"1")]
        items += [PushItem("deep", b"1", "shallow", f"t{number}")]
        good(await store.push([Push(items)]))
        good(await store.push([Push([PushItem("jobs", b"1")] * 10)]))
    good(await store.push([Push([PushItem("worked", b"1", priority=5 + n % 2) for n in range(8)])]))


def good(outcomes: Sequence[Outcome[T]]) -> list[T]:
    for outcome in outcomes:
        if isinstance(outcome, MonarqError):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, MonarqError)]
