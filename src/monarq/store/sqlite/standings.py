"""Partitions as a group sees them, what a seek would do to them, and skipping a message."""

from __future__ import annotations

from typing import Any

from monarq.errors import ConflictError, NotFoundError
from monarq.model import Page, Queue, QueueKind, SeekPreview, Standing
from monarq.operations.groups import Seek
from monarq.store import paging, sealing
from monarq.store.sqlite import segment_log
from monarq.store.sqlite.cursors import MOVED
from monarq.store.sqlite.groups import (
    find_group,
    find_place,
    partitions_where,
    wanted_seq,
)
from monarq.store.sqlite.session import Session
from monarq.store.sqlite.settling import expire_lease
from monarq.store.validation import no_groups

_COLUMNS = """
select p.id, p.name, p.first_seq, p.last_seq, p.last_at,
    coalesce(c.position, p.first_seq - 1) as position, c.available_at,
    case when c.lease_until is not null then c.leased_at end, c.lease_until,
    case when c.lease_until is not null then c.consumer end,
    (select s.created_at from segments s where s.partition_id = p.id
        and s.last_seq > coalesce(c.position, p.first_seq - 1) order by s.last_seq limit 1),
    coalesce(u.attempts, 0), u.retry_at
"""
_STANDINGS = f"""{_COLUMNS}
from partitions p left join cursors c on c.partition_id = p.id and c.group_id = :group
    left join unresolved u
        on u.partition_id = p.id and u.group_id = c.group_id and u.seq = c.position + 1
where p.queue_id = :queue and p.id > :last order by p.id limit :limit
"""
_OF_PARTITION = f"""{_COLUMNS}, g.name
from cursors c cross join partitions p on p.id = c.partition_id
    cross join groups g on g.id = c.group_id
    left join unresolved u
        on u.partition_id = p.id and u.group_id = c.group_id and u.seq = c.position + 1
where c.partition_id = ? order by g.name
"""
_FAILING = f"""{_COLUMNS}
from cursors c cross join unresolved u
    on u.partition_id = c.partition_id and u.group_id = c.group_id and u.seq = c.position + 1
    cross join partitions p on p.id = c.partition_id
where c.group_id = :group and c.available_at is not null and c.has_unresolved = 1
    and u.attempts > 0
order by u.attempts desc, p.id limit :limit
"""
_ERRORS = """
select partition_id, first_seq, last_seq, error from (
    select * from deliveries where queue_id = ? order by id desc limit ?)
where group_name = ? and error is not null order by id desc
"""
_PREVIEW = """
select coalesce(sum(last_seq - wanted), 0), coalesce(sum(max(position - wanted, 0)), 0),
    coalesce(sum(max(wanted - position, 0)), 0), coalesce(sum(wanted <> position), 0),
    coalesce(sum(leased), 0)
from (select p.last_seq, c.position, coalesce(c.lease_until > :now, 0) as leased,
        min(max(:seq, p.first_seq) - 1, p.last_seq) as wanted
    from partitions p cross join cursors c on c.partition_id = p.id and c.group_id = :group
    where {where})
"""
_LOOKED_AT = 20_000


def list_standings(
    session: Session, queue: str, group: str | None, limit: int, after: str | None
) -> Page[Standing]:
    last = paging.position(after, "standings", int) or 0
    found = session.queue(queue)
    if found.kind is not QueueKind.ORDERED:
        raise no_groups(queue)
    group_id = 0
    if group is not None:
        known = find_group(session, found.id, group)
        if known is None:
            raise NotFoundError(f"queue {queue!r} has no group {group!r}")
        group_id = known
    rows = session.db.execute(
        _STANDINGS, {"group": group_id, "queue": found.id, "last": last, "limit": limit + 1}
    )
    standings = [_standing(row) for row in rows]
    return paging.page(standings, limit, "standings", lambda row: row.partition_id)


def standings_of(session: Session, partition_id: int) -> dict[str, Standing]:
    rows = session.db.execute(_OF_PARTITION, (partition_id,)).fetchall()
    return {row[-1]: _standing(row[:-1]) for row in rows}


def list_failing(session: Session, queue: str, group: str, limit: int) -> list[Standing]:
    found, group_id, _ = find_place(session, queue, group, None)
    rows = session.db.execute(_FAILING, {"group": group_id, "limit": limit}).fetchall()
    errors = _errors(session, found, group, {row[0]: row[5] + 1 for row in rows})
    return [_standing(row, errors.get(row[0])) for row in rows]


def _errors(
    session: Session, queue: Queue, group: str, heads: dict[int, int]
) -> dict[int, str | None]:
    """What the log says of the last failure of each partition's head."""
    found: dict[int, str | None] = {}
    if not heads:
        return found
    # The log is read once for all of them, newest first, and only as far as is needed.
    for partition_id, first, last, error in session.db.execute(
        _ERRORS, (queue.id, _LOOKED_AT, group)
    ):
        if partition_id not in found and first <= heads.get(partition_id, 0) <= last:
            found[partition_id] = sealing.open_error(error, session.cipher, queue.name)
            if len(found) == len(heads):
                break
    return found


def _standing(row: Any, error: str | None = None) -> Standing:
    (partition_id, partition, first_seq, last_seq, last_at, position, available_at, leased_at,
     lease_until, consumer, oldest_at, attempts, retry_at) = row  # fmt: skip
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
        oldest_at=oldest_at,
        attempts=attempts,
        retry_at=retry_at,
        error=error,
    )


# --- moving ----------------------------------------------------------------------------------


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
