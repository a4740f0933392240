"""Groups in queues: placing, moving and deleting them. How they begin is in `joining`."""

from __future__ import annotations

from monarq.errors import NotFoundError
from monarq.model import Queue, SeekTo
from monarq.operations.groups import DeleteGroup, Seek
from monarq.store.sqlite import making, segment_log
from monarq.store.sqlite.cursors import MOVED
from monarq.store.sqlite.handlers import handles
from monarq.store.sqlite.session import Session

_FIND = "select id, created_at, joined_to from groups where queue_id = ? and name = ?"
_PLACE = """
update cursors set position = :position, available_at = :available_at, has_unresolved = 0,
    ended_by = case when lease_until is null then ended_by else :moved end,
    lost_before_no = case when lease_until is null then lost_before_no else lost_lease_no end,
    lost_lease_no = case when lease_until is null then lost_lease_no
        else max(lost_lease_no, lease_no) end,
    lease_until = null
where partition_id = :partition and group_id = :group
"""
_BEHIND_ALL = 1 << 62
# {where} is which partitions: all of a queue, or one.
_FORGET_ALL = """
delete from unresolved where group_id = :group
    and partition_id in (select p.id from partitions p where {where})
"""
_PLACE_ALL = """
update cursors set position = min(max(:seq, p.first_seq) - 1, p.last_seq), has_unresolved = 0,
    available_at = case when min(max(:seq, p.first_seq) - 1, p.last_seq) < p.last_seq
        then :now end,
    ended_by = case when lease_until is null then ended_by else :moved end,
    lost_before_no = case when lease_until is null then lost_before_no else lost_lease_no end,
    lost_lease_no = case when lease_until is null then lost_lease_no
        else max(lost_lease_no, lease_no) end,
    lease_until = null
from (select p.id, p.first_seq, p.last_seq from partitions p where {where}) as p
where cursors.partition_id = p.id and cursors.group_id = :group
"""


def find_group(session: Session, queue_id: int, name: str) -> int | None:
    key = (queue_id, name)
    known = session.group_ids.get(key)
    if known is None:
        row = session.db.execute(_FIND, key).fetchone()
        if row is None:
            return None
        known, created_at, joined_to = row
        session.group_ids[key] = known
        if joined_to is not None:
            session.being_made[known] = created_at
    return known


def partitions(
    session: Session, queue_id: int, only: int | None = None
) -> list[tuple[int, int, int]]:
    return session.db.execute(
        f"""select id, first_seq, last_seq from partitions p
        where {partitions_where(only)} order by id""",
        {"queue": queue_id, "only": only},
    ).fetchall()


def partitions_where(only: int | None) -> str:
    return "p.queue_id = :queue" if only is None else "p.id = :only"


# --- placing cursors -----------------------------------------------------------------------


def place(session: Session, partition_id: int, group_id: int, position: int, last_seq: int) -> None:
    """Put a cursor somewhere, with nothing leased and nothing remembered but what is not for it."""
    session.db.execute(
        "delete from unresolved where partition_id = ? and group_id = ?", (partition_id, group_id)
    )
    values = {
        "position": position,
        "available_at": session.now if position < last_seq else None,
        "moved": MOVED,
        "partition": partition_id,
        "group": group_id,
    }
    session.db.execute(_PLACE, values)
    making.withhold(session, partition_id, group_id)


def _place_all(session: Session, queue_id: int, group_id: int, seq: int, only: int | None) -> None:
    """The same for all cursors of a group, or one, so that this seq is next where it is kept."""
    values = {
        "queue": queue_id,
        "group": group_id,
        "seq": seq,
        "only": only,
        "now": session.now,
        "moved": MOVED,
    }
    session.db.execute(_FORGET_ALL.format(where=partitions_where(only)), values)
    session.db.execute(_PLACE_ALL.format(where=partitions_where(only)), values)
    withhold_all(session, queue_id, group_id, only)


def withhold_all(session: Session, queue_id: int, group_id: int, only: int | None = None) -> None:
    rows = session.db.execute(
        f"""select distinct s.partition_id from partitions p cross join segments s
            on s.partition_id = p.id and (s.deleted > 0 or s.for_group is not null)
        where {partitions_where(only)}""",
        {"queue": queue_id, "only": only},
    ).fetchall()
    for (partition_id,) in rows:
        making.withhold(session, partition_id, group_id)


def count_positions(session: Session, queue: Queue) -> None:
    """Set the counters of all groups anew, after many cursors were moved at once."""
    for (group_id,) in session.db.execute(
        "select id from groups where queue_id = ?", (queue.id,)
    ).fetchall():
        count_position(session, queue.id, group_id)


def count_position(session: Session, queue_id: int, group_id: int) -> None:
    # The sum of positions that makes the lag right, whatever partitions are gone.
    pushed = session.counters.read(queue_id)["pushed"]
    counted = session.counters.read(queue_id, group_id)["position"]
    lag = _lag(session, queue_id, group_id)
    session.counters.add(queue_id, group_id, position=pushed - lag - counted)


def count_as_unmoved(session: Session, queue_id: int, group_id: int) -> None:
    """Set the counter of a new group as if all that is kept were before it."""
    [kept] = session.db.execute(
        """select coalesce(sum(last_seq - first_seq + 1), 0) from partitions
        where queue_id = ?""",
        (queue_id,),
    ).fetchone()
    pushed = session.counters.read(queue_id)["pushed"]
    session.counters.add(queue_id, group_id, position=pushed - kept)


def _lag(session: Session, queue_id: int, group_id: int, only: int | None = None) -> int:
    """Looks at every partition: for when many cursors were moved."""
    [lag] = session.db.execute(
        f"""select coalesce(sum(p.last_seq - c.position), 0) from partitions p
        cross join cursors c on c.partition_id = p.id and c.group_id = :group
        where {partitions_where(only)}""",
        {"queue": queue_id, "only": only, "group": group_id},
    ).fetchone()
    return int(lag)


# --- the calls -----------------------------------------------------------------------------


def find_place(
    session: Session, queue_name: str, group: str, partition: str | None
) -> tuple[Queue, int, int | None]:
    """The queue, the group's id and the partition's, if one is named."""
    queue = session.queue(queue_name)
    group_id = find_group(session, queue.id, group)
    if group_id is None:
        raise NotFoundError(f"queue {queue.name!r} has no group {group!r}")
    return queue, group_id, find_partition(session, queue, partition)


def find_partition(session: Session, queue: Queue, name: str | None) -> int | None:
    """Return the id of a partition, if one is named."""
    if name is None:
        return None
    row = session.db.execute(
        "select id from partitions where queue_id = ? and name = ?", (queue.id, name)
    ).fetchone()
    if row is None:
        raise NotFoundError(f"queue {queue.name!r} has no partition {name!r}")
    return int(row[0])


def seek(session: Session, request: Seek) -> int:
    queue, group_id, only = find_place(session, request.queue, request.group, request.partition)
    if only is None:
        making.make_all(session, group_id)
    else:
        making.make_in_group(session, only, group_id)
    was = _lag(session, queue.id, group_id, only)
    counters = session.counters.snapshot()
    if request.time is not None:
        for partition_id, first, last in partitions(session, queue.id, only):
            position = segment_log.position_before(
                session.db, partition_id, request.time, first, last
            )
            place(session, partition_id, group_id, position, last)
    else:
        _place_all(session, queue.id, group_id, wanted_seq(request), only)
    now = _lag(session, queue.id, group_id, only)
    # Whatever the steps on the way have counted.
    session.counters.restore(counters)
    session.counters.add(queue.id, group_id, position=was - now)
    let_retention_look(session, queue, only)
    return now


def wanted_seq(request: Seek) -> int:
    """The seq to be next, as far as it is kept."""
    if request.to is SeekTo.START:
        return 1
    if request.to is SeekTo.END:
        return _BEHIND_ALL
    assert request.seq is not None
    return request.seq


def let_retention_look(session: Session, queue: Queue, only: int | None = None) -> None:
    """Cursors were moved, so that more may go now, by retention or by eviction."""
    session.db.execute(
        f"""update partitions as p set held = 0, check_at = :now
        where {partitions_where(only)} and (held = 1 or :evicts) and emptied_at is null""",
        {
            "queue": queue.id,
            "only": only,
            "now": session.now,
            "evicts": queue.options.max_wait_time_seconds > 0,
        },
    )


@handles(DeleteGroup)
def delete_group(session: Session, request: DeleteGroup) -> int:
    group, queue = request.group, request.queue
    rows = session.db.execute(
        """select g.id, g.queue_id from groups g join queues q on q.id = g.queue_id
        where g.name = ? and (? is null or q.name = ?)""",
        (group, queue, queue),
    ).fetchall()
    for group_id, queue_id in rows:
        _remove_group(session, group, group_id, queue_id)
    if request.forget_start:
        session.db.execute(
            "delete from subscriptions where group_name = ? and (? is null or queue_name = ?)",
            (group, queue, queue),
        )
    return len(rows)


def _remove_group(session: Session, group: str, group_id: int, queue_id: int) -> None:
    db = session.db
    of_group = """partition_id in (select id from partitions where queue_id = ?)
        and group_id = ?"""
    db.execute(
        f"""insert or replace into ended_leases
            (partition_id, group_name, lease_no, lease_token, ended_by, ended_at)
        select partition_id, ?, lease_no, lease_token, coalesce(ended_by, ?), ? from cursors
        where {of_group} and lease_no is not null""",
        (group, MOVED, session.now, queue_id, group_id),
    )
    db.execute(f"delete from unresolved where {of_group}", (queue_id, group_id))
    db.execute(f"delete from cursors where {of_group}", (queue_id, group_id))
    db.execute("delete from groups where id = ?", (group_id,))
    session.group_ids.pop((queue_id, group), None)
    session.counters.forget_group(queue_id, group_id)
    let_retention_look(session, session.queue_by_id(queue_id))
