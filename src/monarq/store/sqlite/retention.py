"""What the lifecycle does to one ordered partition: evict, retain, and remove it when empty.

Each partition says when it has to be looked at; a look does a bounded amount and sets the
next time. Whole segments go, always the oldest first, so that what is kept has no hole.
"""

from __future__ import annotations

from typing import NamedTuple

from monarq.clock import DAY, micros
from monarq.model import Queue
from monarq.store.sqlite import making, segment_log, settling
from monarq.store.sqlite.cursors import Cursor
from monarq.store.sqlite.segment_log import Head
from monarq.store.sqlite.session import Session

EMPTY_FOR = 7 * DAY
"""How long an empty partition stays."""

_LOAD = """
select queue_id, first_seq, last_seq, emptied_at, archived_seq from partitions where id = ?
"""


class _Partition(NamedTuple):
    id: int
    queue: Queue
    first_seq: int
    last_seq: int
    emptied_at: int | None
    archived_seq: int

    def awaits_archive(self, head: Head) -> bool:
        return self.queue.options.retain_until_archived and head.last_seq > self.archived_seq


def look_at(session: Session, partition_id: int, limit: int) -> tuple[int, bool]:
    """How many messages (or the partition itself) were removed, and whether messages died."""
    queue_id, *columns = session.db.execute(_LOAD, (partition_id,)).fetchone()
    partition = _Partition(partition_id, session.queue_by_id(queue_id), *columns)
    if partition.first_seq > partition.last_seq:
        return _look_at_empty(session, partition), False
    making.make_in_partition(session, queue_id, partition_id)
    cursors = _cursors(session, partition_id)
    died = _evict(session, partition, cursors, limit)
    session.flush()
    removed = _retain(session, partition, limit)
    return removed, bool(died)


def _look_at_empty(session: Session, partition: _Partition) -> int:
    goes_at = (partition.emptied_at or session.now) + EMPTY_FOR
    if goes_at > session.now:
        _set_next(session, partition.id, goes_at)
        return 0
    for table in ("cursors", "unresolved", "ended_leases", "transaction_ids"):
        session.db.execute(f"delete from {table} where partition_id = ?", (partition.id,))
    session.db.execute("delete from partitions where id = ?", (partition.id,))
    session.counters.add(partition.queue.id, partitions=-1)
    return 1


def _cursors(session: Session, partition_id: int) -> list[Cursor]:
    rows = session.db.execute(
        "select group_id from cursors where partition_id = ? order by group_id", (partition_id,)
    ).fetchall()
    return [session.cursor(partition_id, group_id) for (group_id,) in rows]


def _evict(session: Session, partition: _Partition, cursors: list[Cursor], limit: int) -> int:
    if not partition.queue.options.max_wait_time_seconds:
        return 0
    died = 0
    for cursor in cursors:
        if cursor.is_leased(session.now):
            continue
        if cursor.lease_until is not None:
            settling.expire_lease(session, cursor)
        died += settling.evict(session, cursor, limit)
    return died


# --- retention -----------------------------------------------------------------------------


def _retain(session: Session, partition: _Partition, limit: int) -> int:
    gone: list[Head] = []
    for head in segment_log.heads(session.db, partition.id, partition.first_seq):
        if len(gone) == limit or not _may_go(session, partition, head):
            break
        gone.append(head)
    if gone:
        _remove(session, partition, gone)
    if len(gone) == limit:
        _set_next(session, partition.id, session.now)
    elif gone and gone[-1].last_seq == partition.last_seq:
        _set_next(session, partition.id, session.now + EMPTY_FOR)
    else:
        _plan(session, partition, gone[-1].last_seq + 1 if gone else partition.first_seq)
    return sum(head.last_seq - head.first_seq + 1 for head in gone)


def _may_go(session: Session, partition: _Partition, head: Head) -> bool:
    options = partition.queue.options
    if not options.retention_enabled or partition.awaits_archive(head):
        return False
    age = session.now - head.created_at
    if options.retention_seconds and age >= micros(options.retention_seconds):
        return True
    if not options.completed_retention_seconds:
        return False
    if age < micros(options.completed_retention_seconds):
        return False
    consumed = _consumed(session, partition.id)
    return consumed is not None and head.last_seq <= consumed


def _consumed(session: Session, partition_id: int) -> int | None:
    """As far as every group has come; None if there is no group."""
    [position] = session.db.execute(
        "select min(position) from cursors where partition_id = ?", (partition_id,)
    ).fetchone()
    return None if position is None else int(position)


def _remove(session: Session, partition: _Partition, gone: list[Head]) -> None:
    db = session.db
    last = gone[-1].last_seq
    for head in gone:
        ids = session.caches.segments.body(db, head).transaction_ids or ()
        db.executemany(
            "delete from transaction_ids where partition_id = ? and transaction_id = ?",
            [(partition.id, one) for one in ids if one is not None],
        )
    db.execute(
        "delete from segments where partition_id = ? and last_seq <= ?", (partition.id, last)
    )
    db.execute(
        """update partitions set first_seq = :next, held = 0,
            emptied_at = case when last_seq < :next then :now end
        where id = :id""",
        {"next": last + 1, "now": session.now, "id": partition.id},
    )
    session.counters.add(partition.queue.id, removed=last - partition.first_seq + 1)
    for cursor in _cursors(session, partition.id):
        cursor.move_past(session, last)
    session.flush()


# --- the next look -------------------------------------------------------------------------


def _plan(session: Session, partition: _Partition, first_seq: int) -> None:
    """Set when this partition has to be looked at again."""
    options = partition.queue.options
    times: list[int] = []
    held = False
    head = segment_log.head_at(session.db, partition.id, first_seq)
    # What is not archived goes at no time: whoever archives it will say so.
    if options.retention_enabled and head is not None and not partition.awaits_archive(head):
        if options.retention_seconds:
            times.append(head.created_at + micros(options.retention_seconds))
        if options.completed_retention_seconds:
            at = head.created_at + micros(options.completed_retention_seconds)
            # Then only an ack can change something, and it will say so.
            held = at <= session.now
            if not held:
                times.append(at)
    if options.max_wait_time_seconds:
        times += _evictions(session, partition)
    _set_next(session, partition.id, min(times, default=None), held)


def _evictions(session: Session, partition: _Partition) -> list[int]:
    """When each group's first message will be too old."""
    wait = micros(partition.queue.options.max_wait_time_seconds)
    times = []
    for cursor in _cursors(session, partition.id):
        head = segment_log.head_at(session.db, partition.id, cursor.position + 1)
        if head is not None:
            times.append(max(head.created_at + wait, cursor.lease_until or 0))
    return times


def _set_next(session: Session, partition_id: int, at: int | None, held: bool = False) -> None:
    session.db.execute(
        "update partitions set check_at = ?, held = ? where id = ?", (at, held, partition_id)
    )
