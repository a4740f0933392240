"""Partitions as a group sees them, on both engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monarq.model import Page, QueueKind, Standing
from monarq.store import paging, sealing
from monarq.store.queries.database import Queries, find_group, find_queue
from monarq.store.validation import no_groups

# `cross join` keeps SQLite from joining in another order.
_SELECT = """
select p.id, p.name, p.first_seq, p.last_seq, p.last_at, coalesce(c.position, p.first_seq - 1),
    c.available_at, case when c.lease_until is not null then c.leased_at end, c.lease_until,
    case when c.lease_until is not null then c.consumer end, {pushed_at},
    coalesce(u.attempts, 0), u.retry_at, u.error
"""
_NEXT = "u.partition_id = c.partition_id and u.group_id = c.group_id and u.seq = c.position + 1"
_OF_GROUP = f"""{_SELECT}
from (
    select id, name, first_seq, last_seq, last_at from monarq.partitions
    where queue_id = $1 and id > $3 order by id limit $4
) p left join monarq.cursors c on c.partition_id = p.id and c.group_id = $2
left join monarq.unresolved u on {_NEXT}
order by p.id
"""
_OF_PARTITION = f"""{_SELECT}, q.name, g.name
from monarq.cursors c cross join monarq.partitions p cross join monarq.queues q
cross join monarq.groups g left join monarq.unresolved u on {_NEXT}
where c.partition_id = $1 and p.id = c.partition_id and q.id = p.queue_id and g.id = c.group_id
order by g.name
"""
_FAILING = f"""{_SELECT}
from monarq.cursors c cross join monarq.unresolved u cross join monarq.partitions p
where c.group_id = $1 and c.available_at is not null and c.has_unresolved and {_NEXT}
    and u.attempts > 0 and p.id = c.partition_id
order by u.attempts desc, p.id limit $2
"""


async def list_standings(
    db: Queries, queue: str, group: str | None, limit: int, after: str | None
) -> Page[Standing]:
    last = paging.position(after, "standings", int) or 0
    queue_id, kind = await find_queue(db, queue)
    if kind is QueueKind.WORK:
        raise no_groups(queue)
    group_id = 0
    if group is not None:
        queue_id, group_id = await find_group(db, queue, group)
    rows = await db.fetch(_rendered(db, _OF_GROUP), queue_id, group_id, last, limit + 1)
    standings = [_standing(db, queue, row) for row in rows]
    return paging.page(standings, limit, "standings", lambda row: row.partition_id)


async def standings_of(db: Queries, partition_id: int) -> dict[str, Standing]:
    rows = await db.fetch(_rendered(db, _OF_PARTITION), partition_id)
    return {group: _standing(db, queue, row) for *row, queue, group in rows}


async def list_failing(db: Queries, queue: str, group: str, limit: int) -> list[Standing]:
    _, group_id = await find_group(db, queue, group)
    rows = await db.fetch(_rendered(db, _FAILING), group_id, limit)
    return [_standing(db, queue, row) for row in rows]


def _rendered(db: Queries, sql: str) -> str:
    return sql.format(pushed_at=db.pushed_at("p.id", "coalesce(c.position, p.first_seq - 1) + 1"))


def _standing(db: Queries, queue: str, row: Sequence[Any]) -> Standing:
    (partition_id, partition, first_seq, last_seq, last_at, position, available_at, leased_at,
     lease_until, consumer, oldest_at, attempts, retry_at, error) = row  # fmt: skip
    return Standing(
        partition_id=partition_id,
        partition=partition,
        first_seq=first_seq,
        last_seq=last_seq,
        last_at=last_at,
        position=position,
        available_at=available_at,
        leased_at=leased_at,
        lease_until=lease_until,
        consumer=consumer,
        oldest_at=oldest_at if position < last_seq else None,
        attempts=attempts,
        retry_at=retry_at,
        error=sealing.open_error(error, db.cipher, queue),
    )
