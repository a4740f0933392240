"""What a seek would do to a group, and skipping a message."""

from __future__ import annotations

from typing import Any

from monarq.errors import ConflictError
from monarq.model import SeekPreview
from monarq.operations.groups import Seek
from monarq.store import sealing
from monarq.store.sqlite import segment_log
from monarq.store.sqlite.cursors import MOVED
from monarq.store.sqlite.groups import (
    find_place,
    partitions_where,
    wanted_seq,
)
from monarq.store.sqlite.session import Session
from monarq.store.sqlite.settling import expire_lease

_PREVIEW = """
select coalesce(sum(last_seq - wanted), 0), coalesce(sum(max(position - wanted, 0)), 0),
    coalesce(sum(max(wanted - position, 0)), 0), coalesce(sum(wanted <> position), 0),
    coalesce(sum(leased), 0)
from (select p.last_seq, c.position, coalesce(c.lease_until > :now, 0) as leased,
        min(max(:seq, p.first_seq) - 1, p.last_seq) as wanted
    from partitions p cross join cursors c on c.partition_id = p.id and c.group_id = :group
    where {where})
"""


def preview_seek(session: Session, request: Seek) -> SeekPreview:
    queue, group_id, only = find_place(session, request.queue, request.group, request.partition)
    values = {"queue": queue.id, "group": group_id, "only": only, "now": session.now}
    if request.time is None:
        where = partitions_where(only)
        row = session.db.execute(
            _PREVIEW.format(where=where), {**values, "seq": wanted_seq(request)}
        ).fetchone()
        return _preview(row)
    sums = [0, 0, 0, 0, 0]
    rows = session.db.execute(
        f"""select p.id, p.first_seq, p.last_seq from partitions p
        where {partitions_where(only)}""",
        values,
    ).fetchall()
    for partition_id, first, last in rows:
        before = segment_log.position_before(session.db, partition_id, request.time, first, last)
        one = session.db.execute(
            _PREVIEW.format(where="p.id = :only"),
            {**values, "only": partition_id, "seq": before + 1},
        ).fetchone()
        sums = [total + part for total, part in zip(sums, one, strict=True)]
    return _preview(sums)


def _preview(row: Any) -> SeekPreview:
    lag, replayed, skipped, partitions, leases = row
    return SeekPreview(
        lag=lag, replayed=replayed, skipped=skipped, partitions=partitions, leases=leases
    )


def skip(session: Session, queue: str, group: str, partition: str, seq: int, error: str) -> int:
    found, group_id, partition_id = find_place(session, queue, group, partition)
    sealed_for = found.name if found.options.encryption_enabled else None
    stored = sealing.stored_error(error, session.cipher, sealed_for)
    assert stored is not None
    assert partition_id is not None
    cursor = session.cursor(partition_id, group_id)
    if cursor.is_leased(session.now):
        cursor.end_lease(session, MOVED, session.now)
    elif cursor.lease_until is not None:
        expire_lease(session, cursor)
    if cursor.is_drained or cursor.position + 1 != seq:
        raise ConflictError(
            f"message {seq} is not the next of partition {partition!r} for group {group!r}"
        )
    cursor.die(session, seq, cursor.attempts(session, seq), stored)
    cursor.make_available(session, session.now)
    return int(cursor.last_seq - cursor.position)
