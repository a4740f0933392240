"""The delivery log, the history of the counters, and settings, on both engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monarq.model import Delivery, MetricPoint, Page
from monarq.store import paging, sealing
from monarq.store.queries.database import Queries, find_queue

DELIVERY_COLUMNS = """
d.partition_id, d.consumer, d.lease_no, d.leased_at, d.ended_at, d.first_seq, d.last_seq,
d.completed, d.failed, d.released, d.dead, d.expired, d.error
"""
"""What `delivery` reads, after the id and the names of queue, partition and group."""
_METRICS = """
select m.at, q.name, m.pushed, m.completed, m.failed, m.dead, m.pending
from monarq.metrics m join monarq.queues q on q.id = m.queue_id
where m.at >= $1 and m.at <= $2 and (m.at, q.name) > ($3, $4) {condition}
order by m.at, q.name limit $5
"""
_END = 2**62


async def list_deliveries(
    db: Queries, select: str, queue: str | None, limit: int, after: str | None
) -> Page[Delivery]:
    """`select` has the names of partitions and groups, which each engine keeps in its own way."""
    last = paging.position(after, "deliveries", int) or 0
    condition, values = "", [last, limit + 1]
    if queue is not None:
        condition, values = "and d.queue_id = $3", [*values, (await find_queue(db, queue))[0]]
    rows = await db.fetch(f"{select} where d.id > $1 {condition} order by d.id limit $2", *values)
    deliveries = [delivery(db, row) for row in rows]
    return paging.page(deliveries, limit, "deliveries", lambda row: row.id)


def delivery(db: Queries, row: Sequence[Any]) -> Delivery:
    (number, queue, partition, group, partition_id, consumer, lease_number, leased_at, ended_at,
     first_seq, last_seq, completed, failed, released, dead, expired, error) = row  # fmt: skip
    return Delivery(
        id=number,
        queue=queue,
        partition=partition,
        partition_id=partition_id,
        group=group,
        consumer=consumer,
        lease_number=lease_number,
        leased_at=leased_at,
        ended_at=ended_at,
        first_seq=first_seq,
        last_seq=last_seq,
        completed=completed,
        failed=failed,
        released=released,
        dead=dead,
        expired=expired,
        error=sealing.open_error(error, db.cipher, queue),
    )


async def metrics(
    db: Queries,
    queue: str | None,
    since: int | None,
    until: int | None,
    limit: int,
    after: str | None,
) -> Page[MetricPoint]:
    last = paging.position(after, "metrics", tuple[int, str]) or (-1, "")
    values = [since or 0, _END if until is None else until, *last, limit + 1]
    condition = ""
    if queue is not None:
        condition = "and m.queue_id = $6"
        values.append((await find_queue(db, queue))[0])
    rows = await db.fetch(_METRICS.format(condition=condition), *values)
    points = [metric_point(row) for row in rows]
    return paging.page(points, limit, "metrics", lambda point: (point.at, point.queue))


def metric_point(row: Sequence[Any]) -> MetricPoint:
    at, queue, pushed, completed, failed, dead, pending = row
    return MetricPoint(
        at=at,
        queue=queue,
        pushed=pushed,
        completed=completed,
        failed=failed,
        dead=dead,
        pending=pending,
    )


async def get_settings(db: Queries) -> dict[str, str]:
    rows = await db.fetch("select key, value from monarq.settings order by key")
    return dict(rows)


async def set_setting(db: Queries, key: str, value: str | None) -> None:
    if value is None:
        await db.fetch("delete from monarq.settings where key = $1", key)
        return
    await db.fetch(
        "insert into monarq.settings (key, value) values ($1, $2) "
        "on conflict (key) do update set value = excluded.value",
        key,
        value,
    )
