"""What is written down along the way: deliveries, metrics, settings."""

from __future__ import annotations

from typing import Any

from monarq.crypto import Cipher
from monarq.model import Delivery, MetricPoint, Page
from monarq.store import paging, sealing
from monarq.store.postgres.database import Database
from monarq.store.postgres.queues import get_queue

DELIVERY_COLUMNS = """
    select d.*, q.name as queue, coalesce(p.name, '') as partition,
        coalesce(g.name, gone.name, '') as group
    from monarq.deliveries d join monarq.queues q on q.id = d.queue_id
    left join monarq.partitions p on p.id = d.partition_id
    left join monarq.groups g on g.id = d.group_id
    left join monarq.deleted_groups gone on gone.id = d.group_id
"""
_DELIVERIES = f"""
    {DELIVERY_COLUMNS}
    where d.id > $1 and ($2::text is null or q.name = $2)
    order by d.id limit $3
"""


async def list_deliveries(
    database: Database, cipher: Cipher | None, queue: str | None, limit: int, after: str | None
) -> Page[Delivery]:
    last = paging.position(after, "deliveries", int) or 0
    rows = await database.fetch(_DELIVERIES, last, queue, limit + 1)
    if queue is not None and not rows:
        await get_queue(database, queue)
    deliveries = [delivery_from(row, cipher) for row in rows]
    return paging.page(deliveries, limit, "deliveries", lambda delivery: delivery.id)


def delivery_from(row: Any, cipher: Cipher | None) -> Delivery:
    return Delivery(
        id=row["id"],
        queue=row["queue"],
        partition=row["partition"],
        partition_id=row["partition_id"],
        group=row["group"],
        consumer=row["consumer"],
        lease_number=row["lease_no"],
        leased_at=row["leased_at"],
        ended_at=row["ended_at"],
        first_seq=row["first_seq"],
        last_seq=row["last_seq"],
        completed=row["completed"],
        failed=row["failed"],
        released=row["released"],
        dead=row["dead"],
        expired=row["expired"],
        error=sealing.open_error(row["error"], cipher, row["queue"]),
    )


async def metrics(
    database: Database,
    queue: str | None,
    since: int | None,
    until: int | None,
    limit: int,
    after: str | None,
) -> Page[MetricPoint]:
    last = paging.position(after, "metrics", tuple[int, str]) or (-1, "")
    rows = await database.fetch(
        "select m.*, q.name as queue from monarq.metrics m "
        "join monarq.queues q on q.id = m.queue_id "
        "where ($1::text is null or q.name = $1) and ($2::bigint is null or m.at >= $2) "
        "and ($3::bigint is null or m.at <= $3) and (m.at, q.name) > ($4, $5) "
        "order by m.at, q.name limit $6",
        queue,
        since,
        until,
        *last,
        limit + 1,
    )
    if queue is not None and not rows:
        await get_queue(database, queue)
    points = [point_from(row) for row in rows]
    return paging.page(points, limit, "metrics", lambda point: (point.at, point.queue))


def point_from(row: Any) -> MetricPoint:
    return MetricPoint(
        at=row["at"],
        queue=row["queue"],
        pushed=row["pushed"],
        completed=row["completed"],
        failed=row["failed"],
        dead=row["dead"],
        pending=row["pending"],
    )


async def get_settings(database: Database) -> dict[str, str]:
    rows = await database.fetch("select key, value from monarq.settings order by key")
    return {row["key"]: row["value"] for row in rows}


async def set_setting(database: Database, key: str, value: str | None) -> None:
    if value is None:
        await database.fetch("delete from monarq.settings where key = $1", key)
        return
    await database.fetch(
        "insert into monarq.settings values ($1, $2) "
        "on conflict (key) do update set value = excluded.value",
        key,
        value,
    )
