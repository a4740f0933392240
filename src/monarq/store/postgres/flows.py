"""The counters of very many queues and groups at once, and how long messages took.

SQLite has its own SQL for these: here counters are sums over shards, and each part of a query is
cut before the next is joined to it, so that no plan reads all groups.
"""

from __future__ import annotations

from monarq.errors import NotFoundError
from monarq.model import GroupFlow, Latency, Page, QueueFlow, QueueKind
from monarq.store import paging
from monarq.store.postgres.database import Database

_SUMS = (
    "partitions", "pushed", "removed", "completed", "failed", "dead", "dead_letters", "scheduled",
    "ready", "leased", "done", "cancelled", "dead_items",
)  # fmt: skip
# What is pending is as in `monarq.pending`, which would look for the counters of each queue anew.
_QUEUES = f"""
    select q.id, q.name, q.kind, q.namespace, q.task, q.paused, q.max_size, q.runs_commands,
        q.dead_queue,
        {", ".join(f"coalesce(c.{name}, 0)::bigint as {name}" for name in _SUMS)},
        coalesce(case when q.kind = 'work' then c.scheduled + c.ready + c.leased
            else c.pushed - coalesce(c.slowest, c.removed) end, 0)::bigint as pending
    from (
        select * from monarq.queues
        where id > $1 and ($2::text is null or name = $2)
            and ($4::text is null or namespace = $4) and ($5::text is null or task = $5)
        order by id limit $3
    ) as q
    left join lateral (
        select {", ".join(f"sum({name}) as {name}" for name in _SUMS)},
            min(position) filter (where group_id > 0) as slowest
        from (
            select group_id, sum(position) as position,
                {", ".join(f"sum({name}) as {name}" for name in _SUMS)}
            from monarq.counters where queue_id = q.id group by group_id
        ) as of_group
    ) as c on true
    order by q.id
"""
_GROUPS = """
    select g.*, case when g.lag > 0 then (
        select min(s.created_at) from monarq.cursors c
        join monarq.partitions p on p.id = c.partition_id and p.last_seq > c.position
        cross join lateral (
            select created_at from monarq.segments
            where partition_id = c.partition_id and first_seq <= c.position + 1
            order by first_seq desc limit 1
        ) as s
        where c.group_id = g.id and c.available_at is not null) end as oldest_at
    from (
        select g.id, g.name, g.queue_id, q.name as queue, g.created_at,
            coalesce(own.completed, 0)::bigint as completed,
            coalesce(own.failed, 0)::bigint as failed, coalesce(own.dead, 0)::bigint as dead,
            (coalesce(total.pushed, 0) - coalesce(own.position, 0))::bigint as lag
        from (
            select g.* from monarq.groups g join monarq.queues q on q.id = g.queue_id
            where g.id > $1 and ($2::text is null or q.name = $2) order by g.id limit $3
        ) as g
        join monarq.queues q on q.id = g.queue_id
        left join lateral (
            select sum(position) as position, sum(completed) as completed, sum(failed) as failed,
                sum(dead) as dead
            from monarq.counters where queue_id = g.queue_id and group_id = g.id
        ) as own on true
        left join lateral (
            select sum(pushed) as pushed from monarq.counters
            where queue_id = g.queue_id and group_id = 0
        ) as total on true
    ) as g
    order by g.id
"""
# Every so many rows one; each is a look into the primary keys of the log and of the segments.
_SAMPLE = """
    select d.ended_at, d.completed, s.created_at from (
        select monarq.first_logged($1) as first,
            monarq.first_logged($2::bigint + 1) - 1 as last
    ) as span
    cross join lateral generate_series(span.first, span.last,
        greatest(1, (span.last - span.first + 1) / $3::bigint)) as step
    cross join lateral (
        select * from monarq.deliveries where id >= step and id <= span.last order by id limit 1
    ) as d
    cross join lateral (
        select created_at, first_seq + count - 1 as last_seq from monarq.segments
        where partition_id = d.partition_id and first_seq <= d.first_seq
        order by first_seq desc limit 1
    ) as s
    where d.completed > 0 and s.last_seq >= d.first_seq
        and ($4::bigint is null or d.queue_id = $4)
    order by d.id
"""
_SAMPLES_OF_ALL = 10_000
"""Looked at to find those of one queue, since the log has no index by queue."""


async def queue_flows(
    database: Database,
    queue: str | None,
    namespace: str | None,
    task: str | None,
    limit: int,
    after: str | None,
) -> Page[QueueFlow]:
    last = paging.position(after, "queue flows", int) or 0
    rows = await database.fetch(_QUEUES, last, queue, limit + 1, namespace, task)
    flows = [
        QueueFlow(
            queue_id=row["id"],
            queue=row["name"],
            kind=QueueKind(row["kind"]),
            namespace=row["namespace"],
            task=row["task"],
            paused=row["paused"],
            max_size=row["max_size"],
            runs_commands=row["runs_commands"],
            dead_queue=row["dead_queue"],
            pending=row["pending"],
            **{name: row[name] for name in _SUMS},
        )
        for row in rows
    ]
    return paging.page(flows, limit, "queue flows", lambda row: row.queue_id)


async def group_flows(
    database: Database, queue: str | None, limit: int, after: str | None
) -> Page[GroupFlow]:
    last = paging.position(after, "group flows", int) or 0
    rows = await database.fetch(_GROUPS, last, queue, limit + 1)
    flows = [
        GroupFlow(
            queue_id=row["queue_id"],
            queue=row["queue"],
            group_id=row["id"],
            group=row["name"],
            created_at=row["created_at"],
            lag=row["lag"],
            oldest_at=row["oldest_at"],
            completed=row["completed"],
            failed=row["failed"],
            dead=row["dead"],
        )
        for row in rows
    ]
    return paging.page(flows, limit, "group flows", lambda row: row.group_id)


async def latencies(
    database: Database, since: int, until: int, queue: str | None, samples: int
) -> list[Latency]:
    queue_id = None
    if queue is not None:
        queue_id = await database.fetchval("select id from monarq.queues where name = $1", queue)
        if queue_id is None:
            raise NotFoundError(f"there is no queue {queue!r}")
    steps = samples if queue is None else _SAMPLES_OF_ALL
    rows = await database.fetch(_SAMPLE, since, until, steps, queue_id)
    return [
        Latency(
            at=row["ended_at"],
            microseconds=max(0, row["ended_at"] - row["created_at"]),
            messages=row["completed"],
        )
        for row in rows
    ]
