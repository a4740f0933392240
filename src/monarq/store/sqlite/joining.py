"""Where groups begin: what they asked for first, and how they are made of it.

A group has a cursor in every partition of its queue, made when either of them is new: see
`making`.
"""

from __future__ import annotations

from monarq.errors import InvalidRequestError
from monarq.model import Queue, QueueKind, StartFrom
from monarq.operations.groups import Seek
from monarq.store.sqlite import groups, making
from monarq.store.sqlite.handlers import handles
from monarq.store.sqlite.session import Session
from monarq.store.validation import no_groups

_SUBSCRIBED = """
select start_at from subscriptions
where group_name = ? and queue_name = ? and namespace = ? and task = ?
"""
_SUBSCRIBE = """
insert into subscriptions (group_name, queue_name, namespace, task, start_at)
values (?, ?, ?, ?, ?)
"""
_NOTE_TOO = _SUBSCRIBE.replace("insert", "insert or ignore")
_LABELLED = """
select q.id, g.id, g.created_at, g.joined_to from queues q
left join groups g on g.queue_id = q.id and g.name = ?
where q.kind = 'ordered' and {labels} order by q.priority desc, q.id
"""


def _check_not_in_the_future(session: Session, start: StartFrom | int) -> None:
    if not isinstance(start, StartFrom) and start > session.now:
        raise InvalidRequestError("subscriptionFrom lies in the future")


def join(session: Session, group: str, start: StartFrom | int, queue: str) -> int:
    """A group's first pop of a queue, which need not exist; since when messages are for it."""
    _check_not_in_the_future(session, start)
    start_at, said_now = _note_start(session, group, start, queue=queue)
    found = session.find_queue(queue)
    if found is not None and found.kind is QueueKind.ORDERED:
        _make_group(session, found, group, start_at, at_end=said_now and start is StartFrom.NEW)
    return start_at


def join_labelled(
    session: Session,
    group: str,
    start: StartFrom | int,
    namespace: str | None,
    task: str | None,
) -> tuple[int, list[tuple[Queue, int]]]:
    """The same by labels; also all ordered queues that have them, with the group's id there,
    highest priority first."""
    _check_not_in_the_future(session, start)
    start_at, said_now = _note_start(
        session, group, start, namespace=namespace or "", task=task or ""
    )
    joined: list[tuple[Queue, int]] = []
    for queue_id, group_id in _labelled(session, group, namespace, task):
        queue = session.queue_by_id(queue_id)
        if group_id is None:
            own = session.db.execute(_SUBSCRIBED, (group, queue.name, "", "")).fetchone()
            at_end = own is None and said_now and start is StartFrom.NEW
            began = start_at if own is None else own[0]
            if own is None:
                session.db.execute(_SUBSCRIBE, (group, queue.name, "", "", began))
            group_id = _make_group(session, queue, group, began, at_end=at_end)
        joined.append((queue, group_id))
    return start_at, joined


def joined_labelled(
    session: Session,
    group: str,
    start: StartFrom | int,
    namespace: str | None,
    task: str | None,
) -> list[tuple[Queue, int]] | None:
    """The queues with these labels and the group's id in each, if it is in all of them: then
    it goes on from its cursors, and what the request says counts for queues that appear
    later. None otherwise."""
    rows = _labelled(session, group, namespace, task)
    joined = [
        (session.queue_by_id(queue_id), group_id)
        for queue_id, group_id in rows
        if group_id is not None
    ]
    if not rows or len(joined) < len(rows):
        return None
    start_at = min(_start_time(session, start), session.now)
    session.db.execute(_NOTE_TOO, (group, "", namespace or "", task or "", start_at))
    return joined


def join_new_queue(session: Session, queue: Queue) -> None:
    """Make the groups that subscribed to a queue before it existed; they consume it from its
    beginning. A subscription to the queue itself counts before those to its labels, and of those
    the one with the earliest start."""
    rows = session.db.execute(
        """select group_name, start_at from subscriptions where queue_name = ?
        or queue_name = '' and (namespace = '' or namespace = ?) and (task = '' or task = ?)
        order by queue_name = '', start_at""",
        (queue.name, queue.namespace, queue.task),
    ).fetchall()
    for group, start_at in rows:
        if groups.find_group(session, queue.id, group) is None:
            _make_group(session, queue, group, start_at, at_end=False)
            session.db.execute(_NOTE_TOO, (group, queue.name, "", "", start_at))


def _labelled(
    session: Session, group: str, namespace: str | None, task: str | None
) -> list[tuple[int, int | None]]:
    labels = {"q.namespace = ?": namespace, "q.task = ?": task}
    wanted = {sql: label for sql, label in labels.items() if label is not None}
    query = _LABELLED.format(labels=" and ".join(wanted))
    found = []
    for queue_id, group_id, created_at, joined_to in session.db.execute(
        query, (group, *wanted.values())
    ).fetchall():
        if joined_to is not None:
            session.being_made[group_id] = created_at
        found.append((queue_id, group_id))
    return found


def _note_start(
    session: Session,
    group: str,
    start: StartFrom | int,
    *,
    queue: str = "",
    namespace: str = "",
    task: str = "",
) -> tuple[int, bool]:
    """Where the group begins by what it said first, and whether it said so just now."""
    scope = (group, queue, namespace, task)
    row = session.db.execute(_SUBSCRIBED, scope).fetchone()
    if row is not None:
        return row[0], False
    start_at = _start_time(session, start)
    session.db.execute(_SUBSCRIBE, (*scope, start_at))
    return start_at, True


def _start_time(session: Session, start: StartFrom | int) -> int:
    if isinstance(start, StartFrom):
        return session.now if start is StartFrom.NEW else 0
    return start


def _make_group(session: Session, queue: Queue, name: str, start_at: int, *, at_end: bool) -> int:
    known = groups.find_group(session, queue.id, name)
    if known is not None:
        return known
    made = session.db.execute(
        """insert into groups (queue_id, name, start_at, created_at, joined_to)
        values (?, ?, ?, ?, 0)""",
        (queue.id, name, start_at, session.now),
    )
    group_id = made.lastrowid
    assert group_id is not None
    session.counters.begin(queue.id, group_id)
    if at_end:
        _begin_at_the_end(session, queue, group_id)
    else:
        groups.count_as_unmoved(session, queue.id, group_id)
        making.make_next(session, group_id)
    return group_id


def _begin_at_the_end(session: Session, queue: Queue, group_id: int) -> None:
    """All cursors are made now: where the end was cannot be told later."""
    session.db.execute(
        """insert into cursors (partition_id, group_id, position, available_at, lost_lease_no)
        select id, :group, last_seq, null, :lost from partitions where queue_id = :queue""",
        {
            "group": group_id,
            # Leases of a group of this name that was deleted have lower numbers.
            "lost": session.new_lease_number(),
            "queue": queue.id,
        },
    )
    session.db.execute("update groups set joined_to = null where id = ?", (group_id,))
    groups.count_position(session, queue.id, group_id)
    groups.let_retention_look(session, queue)


def subscribe(
    session: Session,
    group: str,
    start: StartFrom | int,
    queue: str | None,
    namespace: str | None,
    task: str | None,
) -> int:
    if queue is None:
        return join_labelled(session, group, start, namespace, task)[0]
    found = session.find_queue(queue)
    if found is not None and found.kind is QueueKind.WORK:
        raise no_groups(queue)
    return join(session, group, start, queue)


@handles(Seek)
def seek(session: Session, request: Seek) -> int:
    queue = session.queue(request.queue)
    if queue.kind is QueueKind.WORK:
        raise no_groups(queue.name)
    groups.find_partition(session, queue, request.partition)
    if groups.find_group(session, queue.id, request.group) is None:
        join(session, request.group, request.start(session.now), queue.name)
    return groups.seek(session, request)
