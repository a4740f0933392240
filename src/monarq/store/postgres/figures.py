"""The contract's figures: of queues, partitions, messages, and of the database itself."""

from __future__ import annotations

from typing import Any

from monarq.model import MetricPoint, Page
from monarq.store import paging
from monarq.store.postgres.database import Database
from monarq.store.queries.logs import metric_point

# Not as on SQLite: PostgreSQL might compare a subquery with `max(at)` with every row of a queue.
_POINTS_BEFORE = """
    select q.id, m.at, q.name, m.pushed, m.completed, m.failed, m.dead, m.pending
    from monarq.queues q
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


async def metrics_before(
    database: Database, at: int, queue: str | None, limit: int, after: str | None
) -> Page[MetricPoint]:
    last = paging.position(after, "metrics before", int) or 0
    rows = await database.fetch(_POINTS_BEFORE, at, last, queue, limit + 1)
    found = paging.page(rows, limit, "metrics before", lambda row: row[0])
    return Page([metric_point(row[1:]) for row in found.rows], found.next)


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
