"""How far groups have come in the partitions of a queue, on both engines."""

from __future__ import annotations

from monarq.ids import NumberText
from monarq.model import Cursor, Page
from monarq.operations.groups import ListCursors
from monarq.store import paging
from monarq.store.queries.database import Queries, find_group, handles
from monarq.times import micros_or_none

# Cut before cursors are joined to it, so that no more of them are read.
_CURSORS = """
select p.name, p.id, c.position, p.last_seq, c.available_at, c.lease_until,
    coalesce(c.lease_until > monarq.time($5), false)
from (
    select id, name, last_seq from monarq.partitions
    where queue_id = $1 and id > $3 order by id limit $4
) p left join monarq.cursors c on c.partition_id = p.id and c.group_id = $2
order by p.id
"""


@handles(ListCursors)
async def list_cursors(db: Queries, request: ListCursors) -> Page[Cursor]:
    last = paging.position(request.after, "cursors", int) or 0
    place = await find_group(db, request.queue, request.group)
    rows = await db.fetch(_CURSORS, *place, last, request.limit + 1, db.now())
    found = paging.page(rows, request.limit, "cursors", lambda row: row[1])
    # A group that is being made has no cursor in some.
    cursors = [_cursor(*row) for row in found.rows if row[2] is not None]
    return Page(cursors, found.next)


def _cursor(
    partition: str,
    partition_id: int,
    position: int,
    last_seq: int,
    available_at: int | None,
    lease_until: int | None,
    is_leased: int,
) -> Cursor:
    return Cursor(
        partition=partition,
        partition_id=NumberText(partition_id),
        position=position,
        last_seq=last_seq,
        lag=last_seq - position,
        available_at=micros_or_none(available_at),
        lease_until=micros_or_none(lease_until),
        lease_active=bool(is_leased),
    )
