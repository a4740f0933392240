"""Makes the cursors of new groups, a bounded number at a time.

A group has a cursor in every partition of its queue. If the queue has very many partitions, the
call that makes the group makes the cursors of the first ones. Later pops and the lifecycle make the
others, in order of partition id.

- `groups.joined_to`: all partitions up to this id have a cursor of the group. Null: all partitions.
- A cursor that is made later equals the one that would have been made with the group, so that no
  consumer can tell the difference. Its position follows from the start of the group, and it is
  available since the group was made, or since the first message after that. A group that begins at
  the end is made at once, since nothing that is stored tells later where the end was.
- Calls that need the cursor of one partition make it first: `Session.cursor`, pops by name, and the
  lifecycle before it removes messages. A seek of all partitions completes the group.
- The counted position of the group excludes all messages that are kept. Each cursor that is made
  corrects it.
- A step is part of a transaction. After a crash, the next pop or step of the lifecycle continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from monarq.store.sqlite import segment_log

if TYPE_CHECKING:
    from monarq.store.sqlite.session import Session

PARTITIONS_A_STEP = 4_000
MOST_STEPS = 4
"""Of one transaction, unless it needs the whole group."""

_GROUP = "select id, queue_id, start_at, created_at, joined_to from groups where id = ?"
_BEING_MADE = """
select id, queue_id, start_at, created_at, joined_to from groups
where queue_id = ? and joined_to is not null order by id
"""
_WITHOUT_CURSOR = """
select p.id, p.first_seq, p.last_seq, p.last_at from partitions p
where {where} and not exists (
    select 1 from cursors c where c.partition_id = p.id and c.group_id = :group)
order by p.id limit :most
"""
_MAKE = """
insert into cursors (partition_id, group_id, position, available_at, lost_lease_no)
values (?, ?, ?, ?, ?)
"""
_WITHHELD = """
select distinct partition_id from segments
where (deleted > 0 or for_group is not null) and partition_id between ? and ?
"""
_LET_RETENTION_LOOK = """
update partitions set held = 0, check_at = :now
where queue_id = :queue and id between :first and :last and (held = 1 or :evicts)
    and emptied_at is null
"""

_Partition = tuple[int, int, int, int]


class _Group(NamedTuple):
    id: int
    queue_id: int
    start_at: int
    created_at: int
    joined_to: int | None


def make_next(session: Session, group_id: int) -> int:
    """Make the next cursors of a group. Return how many."""
    group = _Group(*session.db.execute(_GROUP, (group_id,)).fetchone())
    if group.joined_to is None:
        return 0
    values = {
        "queue": group.queue_id,
        "group": group_id,
        "after": group.joined_to,
        "most": PARTITIONS_A_STEP,
    }
    where = "p.queue_id = :queue and p.id > :after"
    rows = session.db.execute(_WITHOUT_CURSOR.format(where=where), values).fetchall()
    _make(session, group, rows)
    joined_to = rows[-1][0] if len(rows) == PARTITIONS_A_STEP else None
    session.db.execute("update groups set joined_to = ? where id = ?", (joined_to, group_id))
    if joined_to is None:
        session.being_made.pop(group_id, None)
    else:
        session.being_made[group_id] = group.created_at
    return len(rows)


def make_for_pop(session: Session, group_id: int) -> bool:
    """Make more cursors of a group, unless it has all, or this transaction has made enough.
    Return whether it did."""
    if group_id not in session.being_made or session.steps_left == 0:
        return False
    session.steps_left -= 1
    make_next(session, group_id)
    return True


def make_all(session: Session, group_id: int) -> None:
    while make_next(session, group_id):
        pass


def make_in_partition(session: Session, queue_id: int, partition_id: int) -> None:
    """Make the cursors of all groups in this partition."""
    for row in session.db.execute(_BEING_MADE, (queue_id,)).fetchall():
        _make_one(session, _Group(*row), partition_id)


def make_in_partition_named(session: Session, queue_id: int, name: str) -> None:
    row = session.db.execute(
        "select id from partitions where queue_id = ? and name = ?", (queue_id, name)
    ).fetchone()
    if row is not None:
        make_in_partition(session, queue_id, row[0])


def make_in_group(session: Session, partition_id: int, group_id: int) -> None:
    row = session.db.execute(_GROUP, (group_id,)).fetchone()
    if row is not None:
        _make_one(session, _Group(*row), partition_id)


def _make_one(session: Session, group: _Group, partition_id: int) -> None:
    if group.joined_to is None:
        return
    values = {"queue": group.queue_id, "group": group.id, "id": partition_id, "most": 1}
    where = "p.queue_id = :queue and p.id = :id"
    _make(
        session,
        group,
        session.db.execute(_WITHOUT_CURSOR.format(where=where), values).fetchall(),
    )


def _make(session: Session, group: _Group, rows: list[_Partition]) -> None:
    if not rows:
        return
    # Leases of a group of this name that was deleted have lower numbers.
    lost = session.new_lease_number()
    moved = 0
    made = []
    for row in rows:
        partition_id, first_seq, *_ = row
        position = _position(session, group, row)
        available_at = _available_at(session, group, row, position)
        moved += position - first_seq + 1
        made.append((partition_id, group.id, position, available_at, lost))
    session.db.executemany(_MAKE, made)
    session.counters.add(group.queue_id, group.id, position=moved)
    ids = {row[0] for row in rows}
    first, last = rows[0][0], rows[-1][0]
    for (partition_id,) in session.db.execute(_WITHHELD, (first, last)).fetchall():
        if partition_id in ids:
            withhold(session, partition_id, group.id)
    options = session.queue_by_id(group.queue_id).options
    session.db.execute(
        _LET_RETENTION_LOOK,
        {
            "now": session.now,
            "queue": group.queue_id,
            "first": first,
            "last": last,
            "evicts": options.max_wait_time_seconds > 0,
        },
    )


def _position(session: Session, group: _Group, row: _Partition) -> int:
    partition_id, first_seq, last_seq, last_at = row
    if not group.start_at:
        return first_seq - 1
    if last_at < group.start_at:
        return last_seq
    return segment_log.position_before(
        session.db, partition_id, group.start_at, first_seq, last_seq
    )


def _available_at(session: Session, group: _Group, row: _Partition, position: int) -> int | None:
    partition_id, _, last_seq, last_at = row
    if position == last_seq:
        return None
    since = group.created_at
    if last_at > since:
        head = segment_log.head_at(session.db, partition_id, position + 1)
        assert head is not None
        since = max(since, head.created_at)
    # The clock may have been set back since.
    return min(since, session.now)


def withhold(session: Session, partition_id: int, group_id: int) -> None:
    """Messages that were deleted, or are for another group, are resolved for this one."""
    rows = session.db.execute(
        """select s.first_seq, s.last_seq, s.offsets, s.for_group from cursors c
        cross join segments s on s.partition_id = c.partition_id and s.last_seq > c.position
            and (s.deleted > 0 or s.for_group is not null)
        where c.partition_id = ? and c.group_id = ? order by s.last_seq""",
        (partition_id, group_id),
    ).fetchall()
    if not rows:
        return
    cursor = session.cursor(partition_id, group_id)
    for first_seq, last_seq, stored, for_group in rows:
        offsets = segment_log.decode_offsets(stored)
        is_foreign = for_group not in (None, cursor.group)
        for at, seq in enumerate(range(first_seq, last_seq + 1)):
            if is_foreign or offsets[at] == offsets[at + 1]:
                cursor.withhold(session, seq)
    session.flush()
