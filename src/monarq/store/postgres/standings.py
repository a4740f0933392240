"""Partitions as a group sees them, what a seek would do to them, and skipping a message."""

from __future__ import annotations

from typing import Any

from monarq.crypto import Cipher
from monarq.errors import ConflictError
from monarq.model import Page, QueueKind, SeekPreview, Standing
from monarq.operations.groups import Seek
from monarq.store import paging, sealing
from monarq.store.postgres.catalog import Catalog
from monarq.store.postgres.database import Database
from monarq.store.postgres.groups import find_partition, find_place, seek_mode
from monarq.store.postgres.queues import get_queue
from monarq.store.postgres.sealed_answers import encrypted_queues
from monarq.store.validation import no_groups

_COLUMNS = """
    select p.id, p.name, p.first_seq, p.last_seq, p.last_at,
        coalesce(c.position, p.first_seq - 1) as position, c.available_at, c.leased_at,
        c.lease_until, c.consumer, coalesce(u.attempts, 0) as attempts, u.retry_at, u.error,
        case when coalesce(c.position, p.first_seq - 1) < p.last_seq then (
            select s.created_at from monarq.segments s
            where s.partition_id = p.id
                and s.first_seq <= coalesce(c.position, p.first_seq - 1) + 1
            order by s.first_seq desc limit 1) end as oldest_at
"""
_STANDINGS = f"""{_COLUMNS}
    from (select * from monarq.partitions where queue_id = $1 and id > $3 order by id limit $4) p
    left join monarq.cursors c on c.partition_id = p.id and c.group_id = $2
    left join monarq.unresolved u
        on u.partition_id = p.id and u.group_id = c.group_id and u.seq = c.position + 1
    order by p.id
"""
_OF_PARTITION = f"""{_COLUMNS}, g.name as group_name
    from monarq.cursors c join monarq.partitions p on p.id = c.partition_id
    join monarq.groups g on g.id = c.group_id
    left join monarq.unresolved u
        on u.partition_id = p.id and u.group_id = c.group_id and u.seq = c.position + 1
    where c.partition_id = $1 order by g.name
"""
_FAILING = f"""{_COLUMNS}
    from monarq.cursors c
    join monarq.unresolved u
        on u.partition_id = c.partition_id and u.group_id = c.group_id and u.seq = c.position + 1
    join monarq.partitions p on p.id = c.partition_id
    where c.group_id = $1 and c.available_at is not null and c.has_unresolved and u.attempts > 0
    order by u.attempts desc, p.id limit $2
"""
_PREVIEW = """
    select coalesce(sum(m.last_seq - m.wanted), 0)::bigint as lag,
        coalesce(sum(greatest(m.position - m.wanted, 0)), 0)::bigint as replayed,
        coalesce(sum(greatest(m.wanted - m.position, 0)), 0)::bigint as skipped,
        count(*) filter (where m.wanted <> m.position) as partitions,
        count(*) filter (where m.lease_until > monarq.time($6)) as leases
    from (
        select p.last_seq, c.position, c.lease_until,
            case $4 when 'start' then p.first_seq - 1 when 'end' then p.last_seq
                when 'time' then monarq.seq_before(p.id, $5)
                else least(greatest($5::bigint - 1, p.first_seq - 1), p.last_seq) end as wanted
        from monarq.partitions p
        join monarq.cursors c on c.partition_id = p.id and c.group_id = $2
        where p.queue_id = $1 and ($3::bigint is null or p.id = $3)
    ) as m
"""


async def list_standings(
    database: Database,
    catalog: Catalog,
    cipher: Cipher | None,
    queue: str,
    group: str | None,
    limit: int,
    after: str | None,
) -> Page[Standing]:
    found = await get_queue(database, queue)
    if found.kind is QueueKind.WORK:
        raise no_groups(queue)
    queue_id, group_id = found.id, 0
    if group is not None:
        queue_id, group_id = await find_place(catalog, queue, group)
    last = paging.position(after, "standings", int) or 0
    rows = await database.fetch(_STANDINGS, queue_id, group_id, last, limit + 1)
    standings = [_standing(row, cipher, queue) for row in rows]
    return paging.page(standings, limit, "standings", lambda row: row.partition_id)


async def standings_of(
    database: Database, catalog: Catalog, cipher: Cipher | None, partition_id: int
) -> dict[str, Standing]:
    facts = (await catalog.facts([partition_id])).get(partition_id)
    if facts is None:
        return {}
    rows = await database.fetch(_OF_PARTITION, partition_id)
    return {row["group_name"]: _standing(row, cipher, facts.queue) for row in rows}


async def list_failing(
    database: Database,
    catalog: Catalog,
    cipher: Cipher | None,
    queue: str,
    group: str,
    limit: int,
) -> list[Standing]:
    _, group_id = await find_place(catalog, queue, group)
    rows = await database.fetch(_FAILING, group_id, limit)
    return [_standing(row, cipher, queue) for row in rows]


def _standing(row: Any, cipher: Cipher | None, queue: str) -> Standing:
    return Standing(
        partition_id=row["id"],
        partition=row["name"],
        first_seq=row["first_seq"],
        last_seq=row["last_seq"],
        last_at=row["last_at"],
        position=row["position"],
        available_at=row["available_at"],
        leased_at=row["leased_at"],
        lease_until=row["lease_until"],
        consumer=row["consumer"],
        oldest_at=row["oldest_at"],
        attempts=row["attempts"],
        retry_at=row["retry_at"],
        error=sealing.open_error(row["error"], cipher, queue),
    )


async def preview_seek(database: Database, catalog: Catalog, request: Seek) -> SeekPreview:
    queue_id, group_id = await find_place(catalog, request.queue, request.group)
    partition_id = None
    if request.partition is not None:
        partition_id = await find_partition(database, queue_id, request.queue, request.partition)
    row: Any = await database.fetchrow(
        _PREVIEW, queue_id, group_id, partition_id, *seek_mode(request), database.now()
    )
    return SeekPreview(
        lag=row["lag"],
        replayed=row["replayed"],
        skipped=row["skipped"],
        partitions=row["partitions"],
        leases=row["leases"],
    )


async def skip(
    database: Database,
    catalog: Catalog,
    cipher: Cipher | None,
    queue: str,
    group: str,
    partition: str,
    seq: int,
    error: str,
) -> int:
    queue_id, group_id = await find_place(catalog, queue, group)
    partition_id = await find_partition(database, queue_id, queue, partition)
    is_encrypted = await encrypted_queues(database, catalog, cipher, [queue])
    stored = sealing.stored_error(error, cipher, queue if is_encrypted else None)
    left: int | None = await database.fetchval(
        "select monarq.skip($1, $2, $3, $4, $5, $6)",
        database.now(),
        queue_id,
        partition_id,
        group_id,
        seq,
        stored,
    )
    if left is None:
        raise ConflictError(
            f"message {seq} is not the next of partition {partition!r} for group {group!r}"
        )
    return left
