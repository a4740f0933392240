"""Partitions, on both engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monarq.errors import NotFoundError
from monarq.ids import NumberText
from monarq.model import Page, PartitionStats, QueueKind
from monarq.operations.partitions import ListPartitions
from monarq.store import paging
from monarq.store.queries.database import Queries, find_queue, handles
from monarq.times import Micros

# `cross join` keeps SQLite from beginning with the queues; PostgreSQL does not mind.
_SELECT = """
select q.name, q.kind, p.id, p.name, p.first_seq, p.last_seq, p.last_at,
    (select min(c.position) from monarq.cursors c where c.partition_id = p.id)
from monarq.partitions p cross join monarq.queues q
"""
_OF_QUEUE = f"""{_SELECT}
where q.id = p.queue_id and p.queue_id = $1 and p.id > $2 order by p.id limit $3
"""


@handles(ListPartitions)
async def list_partitions(db: Queries, request: ListPartitions) -> Page[PartitionStats]:
    queue_id, _ = await find_queue(db, request.queue)
    last = paging.position(request.after, "partitions", int) or 0
    rows = await db.fetch(_OF_QUEUE, queue_id, last, request.limit + 1)
    return paging.page(
        [_partition(row) for row in rows],
        request.limit,
        "partitions",
        lambda partition: partition.partition_id,
    )


async def get_partition(db: Queries, partition_id: int) -> PartitionStats:
    rows = await db.fetch(f"{_SELECT} where q.id = p.queue_id and p.id = $1", partition_id)
    if not rows:
        raise NotFoundError(f"there is no partition {partition_id}")
    return _partition(rows[0])


def _partition(row: Sequence[Any]) -> PartitionStats:
    queue, kind, partition_id, name, first_seq, last_seq, last_at, slowest = row
    resolved = first_seq - 1 if slowest is None else slowest
    return PartitionStats(
        partition_id=NumberText(partition_id),
        partition=name,
        queue=queue,
        first_seq=first_seq,
        last_seq=last_seq,
        pending=0 if kind == QueueKind.WORK else last_seq - resolved,
        last_at=Micros(last_at),
    )
