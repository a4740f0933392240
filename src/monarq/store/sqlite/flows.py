"""The counters of very many queues and groups at once, and how long messages took."""

from __future__ import annotations

from monarq.model import GroupFlow, Latency, Page, QueueFlow, QueueKind
from monarq.store import paging
from monarq.store.sqlite.session import Session

_QUEUES = """
select q.id, q.name, q.kind, q.namespace, q.task, q.paused, q.max_size, q.runs_commands,
    q.dead_queue,
    c.partitions, c.pushed, c.removed, c.completed, c.failed, c.dead, c.dead_letters, c.scheduled,
    c.ready, c.leased, c.done, c.cancelled, c.dead_items,
    case q.kind when 'work' then c.scheduled + c.ready + c.leased
        else c.pushed - coalesce((
            select min(g.position) from counters g where g.queue_id = q.id and g.group_id > 0
        ), c.removed) end
from queues q join counters c on c.queue_id = q.id and c.group_id = 0
where q.id > :last and (:queue is null or q.name = :queue)
    and (:namespace is null or q.namespace = :namespace) and (:task is null or q.task = :task)
order by q.id limit :limit
"""
_GROUPS = """
select g.queue_id, q.name, g.id, g.name, g.created_at, t.pushed - c.position,
    case when t.pushed > c.position then (
        select min((select s.created_at from segments s
            where s.partition_id = u.partition_id and s.last_seq > u.position
            order by s.last_seq limit 1))
        from cursors u where u.group_id = g.id and u.available_at is not null) end,
    c.completed, c.failed, c.dead
from groups g join queues q on q.id = g.queue_id
    join counters c on c.queue_id = g.queue_id and c.group_id = g.id
    join counters t on t.queue_id = g.queue_id and t.group_id = 0
where g.id > :last and (:queue is null or q.name = :queue) order by g.id limit :limit
"""
_LOGGED = "select id, ended_at from deliveries where id >= ? order by id limit 1"
_SAMPLE = """
select d.id, d.ended_at, d.completed, (
    select s.created_at from segments s
    where s.partition_id = d.partition_id and s.last_seq >= d.first_seq
        and s.first_seq <= d.first_seq
    order by s.last_seq limit 1)
from deliveries d where d.id >= :id and d.id <= :last {condition} order by d.id limit 1
"""


def queue_flows(
    session: Session,
    queue: str | None,
    namespace: str | None,
    task: str | None,
    limit: int,
    after: str | None,
) -> Page[QueueFlow]:
    last = paging.position(after, "queue flows", int) or 0
    labels = {"namespace": namespace, "task": task}
    rows = session.db.execute(_QUEUES, {"last": last, "queue": queue, "limit": limit + 1, **labels})
    return paging.page(
        [_queue(*row) for row in rows], limit, "queue flows", lambda row: row.queue_id
    )


def _queue(
    queue_id: int,
    queue: str,
    kind: str,
    namespace: str,
    task: str,
    paused: int,
    max_size: int,
    runs_commands: int,
    dead_queue: str,
    *counters: int,
) -> QueueFlow:
    (partitions, pushed, removed, completed, failed, dead, dead_letters, scheduled, ready, leased,
     done, cancelled, dead_items, pending) = counters  # fmt: skip
    return QueueFlow(
        queue_id=queue_id,
        queue=queue,
        kind=QueueKind(kind),
        namespace=namespace,
        task=task,
        paused=bool(paused),
        max_size=max_size,
        runs_commands=bool(runs_commands),
        dead_queue=dead_queue,
        partitions=partitions,
        pushed=pushed,
        removed=removed,
        completed=completed,
        failed=failed,
        dead=dead,
        dead_letters=dead_letters,
        scheduled=scheduled,
        ready=ready,
        leased=leased,
        done=done,
        cancelled=cancelled,
        dead_items=dead_items,
        pending=pending,
    )


def group_flows(
    session: Session, queue: str | None, limit: int, after: str | None
) -> Page[GroupFlow]:
    last = paging.position(after, "group flows", int) or 0
    rows = session.db.execute(_GROUPS, {"last": last, "queue": queue, "limit": limit + 1})
    found = [
        GroupFlow(
            queue_id=queue_id,
            queue=name,
            group_id=group_id,
            group=group,
            created_at=created_at,
            lag=lag,
            oldest_at=oldest_at,
            completed=completed,
            failed=failed,
            dead=dead,
        )
        for (
            queue_id,
            name,
            group_id,
            group,
            created_at,
            lag,
            oldest_at,
            completed,
            failed,
            dead,
        ) in rows
    ]
    return paging.page(found, limit, "group flows", lambda row: row.group_id)


# --- how long it took ------------------------------------------------------------------------


def latencies(
    session: Session, since: int, until: int, queue: str | None, samples: int
) -> list[Latency]:
    first, last = first_logged(session, since), first_logged(session, until + 1) - 1
    step = max(1, (last - first + 1) // samples)
    condition = "and d.completed > 0"
    if queue is not None:
        # By the queue's own index, so that a quiet queue is found among busy ones.
        condition += f" and d.queue_id = {session.queue(queue).id}"
    found: list[Latency] = []
    at = first
    while at <= last and len(found) < samples:
        row = session.db.execute(
            _SAMPLE.format(condition=condition), {"id": at, "last": last}
        ).fetchone()
        if row is None:
            break
        number, ended_at, completed, created_at = row
        if created_at is not None:
            took = max(0, ended_at - created_at)
            found.append(Latency(at=ended_at, microseconds=took, messages=completed))
        at = max(at + step, number + 1)
    return found


def first_logged(session: Session, time: int) -> int:
    """The first row of the delivery log that ended then or later; the one behind the last, if
    there is none. Rows are written in the order of time, so this is a search by halves."""
    [low, high] = session.db.execute("select min(id), max(id) from deliveries").fetchone()
    if low is None:
        return 1
    high += 1
    while low < high:
        middle = (low + high) // 2
        row = session.db.execute(_LOGGED, (middle,)).fetchone()
        if row is None or row[1] >= time:
            high = middle
        else:
            low = int(row[0]) + 1
    return int(low)
