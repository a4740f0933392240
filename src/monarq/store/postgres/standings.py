"""What a seek would do to a group, and skipping a message."""

from __future__ import annotations

from typing import Any

from monarq.crypto import Cipher
from monarq.errors import ConflictError
from monarq.model import SeekPreview
from monarq.operations.groups import Seek
from monarq.store import sealing
from monarq.store.postgres.catalog import Catalog
from monarq.store.postgres.database import Database
from monarq.store.postgres.groups import find_partition, find_place, seek_mode
from monarq.store.postgres.sealed_answers import encrypted_queues

# Seeks to a time need a procedure here, and a look at each partition on SQLite.
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
