"""How far the groups have come."""

from __future__ import annotations

from monarq.model import Group, Page
from monarq.operations.groups import ListGroups
from monarq.store import paging
from monarq.store.sqlite.handlers import handles
from monarq.store.sqlite.session import Session
from monarq.times import Micros, StartTime


@handles(ListGroups)
def list_groups(session: Session, request: ListGroups) -> Page[Group]:
    queue, group = request.queue, request.group
    last = paging.position(request.after, "groups", tuple[str, str]) or ("", "")
    rows = session.db.execute(
        f"""select q.name, g.name, g.start_at, g.created_at, g.queue_id, g.id
        from queues q cross join groups g on g.queue_id = q.id
        where q.name {">=" if queue is None else "="} ? and (q.name, g.name) > (?, ?)
            and (? is null or g.name = ?)
        order by q.name, g.name limit ?""",
        (last[0] if queue is None else queue, *last, group, group, request.limit + 1),
    ).fetchall()
    found = [_to_group(session, *row) for row in rows]
    return paging.page(found, request.limit, "groups", lambda g: (g.queue, g.name))


def _to_group(
    session: Session,
    queue: str,
    name: str,
    start_at: int,
    created_at: int,
    queue_id: int,
    group_id: int,
) -> Group:
    own = session.counters.read(queue_id, group_id)
    return Group(
        name=name,
        queue=queue,
        start_at=StartTime(start_at),
        created_at=Micros(created_at),
        lag=session.counters.read(queue_id)["pushed"] - own["position"],
        lag_seconds=_lag_seconds(session, group_id),
        completed=own["completed"],
        failed=own["failed"],
        dead=own["dead"],
    )


def _lag_seconds(session: Session, group_id: int) -> float:
    [oldest] = session.db.execute(
        """select min((select s.created_at from segments s
            where s.partition_id = c.partition_id and s.last_seq > c.position
            order by s.last_seq limit 1))
        from cursors c where c.group_id = ? and c.available_at is not null""",
        (group_id,),
    ).fetchone()
    return 0.0 if oldest is None else max(0.0, (session.now - oldest) / 1e6)
