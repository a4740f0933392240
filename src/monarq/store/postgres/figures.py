"""The contract's figures: of queues, partitions, messages, and of the database itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monarq.errors import NotFoundError
from monarq.model import MetricPoint, Page, PartitionStats, QueueKind
from monarq.store import paging
from monarq.store.postgres.database import Database
from monarq.store.postgres.logs import point_from

_PARTITION = """
    select q.name as queue, q.kind, p.id, p.name, p.first_seq, p.last_seq, p.last_at, (
        select min(c.position) from monarq.cursors c where c.partition_id = p.id) as slowest
    from monarq.partitions p join monarq.queues q on q.id = p.queue_id
"""
_PARTITIONS = f"{_PARTITION} where p.queue_id = $1 and p.id > $2 order by p.id limit $3"
_GROUP_STATES = """
    select x.place, g.name, case
        when x.seq <= c.position or u.acked then case when exists (
            select from monarq.dead_letters d
            where d.partition_id = x.partition_id and d.seq = x.seq and d.group_name = g.name
        ) then 'dead' else 'done' end
        when c.lease_until > monarq.time($3) and x.seq <= c.lease_to
            and u.answered_lease_no is distinct from c.lease_no then 'leased'
        else 'pending' end as state
    from unnest($1::bigint[], $2::bigint[]) with ordinality as x (partition_id, seq, place)
    join monarq.cursors c on c.partition_id = x.partition_id
    join monarq.groups g on g.id = c.group_id
    left join monarq.unresolved u
        on u.partition_id = c.partition_id and u.group_id = c.group_id and u.seq = x.seq
    order by g.name
"""
_POINTS_BEFORE = """
    select q.id, q.name as queue, m.* from monarq.queues q
    cross join lateral (
        select at, pushed, completed, failed, dead, pending from monarq.metrics
        where queue_id = q.id and at < $1 order by at desc limit 1) as m
    where q.id > $2 and ($3::text is null or q.name = $3) order by q.id limit $4
"""
_DATABASE = """
    select current_setting('server_version') as version,
        pg_database_size(current_database()) as bytes,
        (select count(*) from pg_stat_activity where datname = current_database())
            as connections,
        (select count(*) from pg_stat_activity
            where datname = current_database() and state = 'active') as active,
        (select count(*) from pg_stat_activity
            where datname = current_database() and state like 'idle in transaction%') as idle_in,
        current_setting('max_connections')::integer as most,
        (select coalesce(max(age(backend_xmin)), 0) from pg_stat_activity) as xmin_age,
        (select coalesce(extract(epoch from max(clock_timestamp() - xact_start)), 0)
            from pg_stat_activity where datname = current_database())::double precision
            as oldest_transaction,
        d.xact_commit, d.xact_rollback, d.deadlocks, d.temp_bytes, d.blks_hit, d.blks_read
    from pg_stat_database d where d.datname = current_database()
"""
_TABLES = """
    select s.relname as name, s.n_live_tup as live, s.n_dead_tup as dead,
        pg_relation_size(s.relid) as table_bytes, pg_indexes_size(s.relid) as index_bytes,
        pg_total_relation_size(s.relid) as total_bytes,
        extract(epoch from greatest(s.last_vacuum, s.last_autovacuum))::double precision
            as vacuumed_at,
        s.n_tup_upd as updated, s.n_tup_hot_upd as hot_updated
    from pg_stat_user_tables s
    where s.relid in (select c.oid from pg_class c
        where c.relnamespace = (select relnamespace from pg_class
            where oid = 'monarq.queues'::regclass))
    order by total_bytes desc
"""


async def list_partitions(
    database: Database, queue: str, limit: int, after: str | None
) -> Page[PartitionStats]:
    queue_id = await database.fetchval("select id from monarq.queues where name = $1", queue)
    if queue_id is None:
        raise NotFoundError(f"there is no queue {queue!r}")
    last = paging.position(after, "partitions", int) or 0
    rows = await database.fetch(_PARTITIONS, queue_id, last, limit + 1)
    partitions = [_to_partition(row) for row in rows]
    return paging.page(partitions, limit, "partitions", lambda partition: partition.partition_id)


async def get_partition(database: Database, partition_id: int) -> PartitionStats:
    row = await database.fetchrow(f"{_PARTITION} where p.id = $1", partition_id)
    if row is None:
        raise NotFoundError(f"there is no partition {partition_id}")
    return _to_partition(row)


def _to_partition(row: Any) -> PartitionStats:
    first_seq, last_seq, slowest = row["first_seq"], row["last_seq"], row["slowest"]
    resolved = first_seq - 1 if slowest is None else slowest
    return PartitionStats(
        queue=row["queue"],
        partition_id=row["id"],
        partition=row["name"],
        first_seq=first_seq,
        last_seq=last_seq,
        pending=0 if row["kind"] == QueueKind.WORK else last_seq - resolved,
        last_at=row["last_at"],
    )


async def group_states(
    database: Database, places: Sequence[tuple[int, int]]
) -> list[dict[str, str]]:
    rows = await database.fetch(
        _GROUP_STATES,
        [partition_id for partition_id, _ in places],
        [seq for _, seq in places],
        database.now(),
    )
    states: list[dict[str, str]] = [{} for _ in places]
    for row in rows:
        states[row["place"] - 1][row["name"]] = row["state"]
    return states


async def metrics_before(
    database: Database, at: int, queue: str | None, limit: int, after: str | None
) -> Page[MetricPoint]:
    last = paging.position(after, "metrics before", int) or 0
    rows = await database.fetch(_POINTS_BEFORE, at, last, queue, limit + 1)
    found = paging.page(rows, limit, "metrics before", lambda row: row["id"])
    return Page([point_from(row) for row in found.rows], found.next)


async def health_figures(database: Database) -> dict[str, Any]:
    about: Any = await database.fetchrow(_DATABASE)
    tables = await database.fetch(_TABLES)
    read = about["blks_hit"] + about["blks_read"]
    return {
        "store": "postgresql",
        "version": about["version"],
        "databaseBytes": about["bytes"],
        "connections": about["connections"],
        "activeConnections": about["active"],
        "idleInTransaction": about["idle_in"],
        "maxConnections": about["most"],
        "oldestXminAge": about["xmin_age"],
        "oldestTransactionSeconds": about["oldest_transaction"],
        "deadTuples": sum(row["dead"] for row in tables),
        "commits": about["xact_commit"],
        "rollbacks": about["xact_rollback"],
        "deadlocks": about["deadlocks"],
        "temporaryBytes": about["temp_bytes"],
        "cacheHitRatio": about["blks_hit"] / read if read else 1.0,
        "tables": [
            {
                "table": row["name"],
                "liveTuples": row["live"],
                "deadTuples": row["dead"],
                "tableBytes": row["table_bytes"],
                "indexBytes": row["index_bytes"],
                "totalBytes": row["total_bytes"],
                "updates": row["updated"],
                "hotUpdates": row["hot_updated"],
                "vacuumedAt": row["vacuumed_at"],
            }
            for row in tables
        ],
    }
