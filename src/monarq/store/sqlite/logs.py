"""What is noted beside the queues: the delivery log, the metrics' history, settings."""

from __future__ import annotations

from typing import Any

from monarq.clock import SECOND
from monarq.model import Delivery, MetricPoint, Page
from monarq.store import paging, sealing
from monarq.store.sqlite.session import Session

MINUTE = 60 * SECOND
_DELIVERY_COLUMNS = (
    "partition_id", "consumer", "leased_at", "ended_at", "first_seq", "last_seq", "completed",
    "failed", "released", "dead", "expired", "error",
)  # fmt: skip
_DELIVERIES = f"""
select d.id, q.name as queue, d.partition_name as partition, d.group_name as "group",
    d.lease_no as lease_number, {", ".join(f"d.{column}" for column in _DELIVERY_COLUMNS)}
from deliveries d cross join queues q on q.id = d.queue_id
"""
_DELIVERY_FIELDS = ("id", "queue", "partition", "group", "lease_number", *_DELIVERY_COLUMNS)


def list_deliveries(
    session: Session, queue: str | None, limit: int, after: str | None
) -> Page[Delivery]:
    last = paging.position(after, "deliveries", int) or 0
    condition = "" if queue is None else f"d.queue_id = {session.queue(queue).id} and"
    rows = session.db.execute(
        f"{_DELIVERIES} where {condition} d.id > ? order by d.id limit ?", (last, limit + 1)
    )
    found = [_to_delivery(session, row) for row in rows]
    return paging.page(found, limit, "deliveries", lambda delivery: delivery.id)


def get_delivery(session: Session, number: int) -> Delivery:
    """A row of the log that is known to be there."""
    return _to_delivery(
        session, session.db.execute(f"{_DELIVERIES} where d.id = ?", (number,)).fetchone()
    )


def _to_delivery(session: Session, row: tuple[Any, ...]) -> Delivery:
    fields = dict(zip(_DELIVERY_FIELDS, row, strict=True))
    fields["error"] = sealing.open_error(fields["error"], session.cipher, fields["queue"])
    return Delivery(**fields)


# --- metrics -------------------------------------------------------------------------------


def add_metric_points(session: Session, limit: int) -> None:
    """Note the counters of queues in which something changed, under this minute."""
    rows = session.db.execute(
        "select queue_id from counters where changed = 1 and group_id = 0 limit ?", (limit,)
    ).fetchall()
    at = session.now - session.now % MINUTE
    for (queue_id,) in rows:
        counts = session.counters.describe(session.queue_by_id(queue_id)).counts
        session.db.execute(
            """insert or replace into metrics
                (queue_id, at, pushed, completed, failed, dead, pending)
            values (?, ?, ?, ?, ?, ?, ?)""",
            (queue_id, at, counts.pushed, counts.completed, counts.failed, counts.dead,
             counts.pending),
        )  # fmt: skip
        session.db.execute(
            "update counters set changed = 0 where queue_id = ? and group_id = 0", (queue_id,)
        )


def metrics(
    session: Session,
    queue: str | None,
    since: int | None,
    until: int | None,
    limit: int,
    after: str | None,
) -> Page[MetricPoint]:
    at, name = paging.position(after, "metrics", tuple[int, str]) or (-1, "")
    queue_id = None if queue is None else session.queue(queue).id
    rows = session.db.execute(
        """select m.at, q.name, m.pushed, m.completed, m.failed, m.dead, m.pending
        from metrics m join queues q on q.id = m.queue_id
        where (? is null or m.queue_id = ?) and m.at >= ? and m.at <= ?
            and (m.at, q.name) > (?, ?)
        order by m.at, q.name limit ?""",
        (queue_id, queue_id, since or 0, 1 << 62 if until is None else until, at, name,
         limit + 1),
    )  # fmt: skip
    points = [
        MetricPoint(
            at=row[0], queue=row[1], pushed=row[2], completed=row[3], failed=row[4], dead=row[5],
            pending=row[6],
        )
        for row in rows
    ]  # fmt: skip
    return paging.page(points, limit, "metrics", lambda point: (point.at, point.queue))


# --- settings ------------------------------------------------------------------------------


def get_settings(session: Session) -> dict[str, str]:
    return dict(session.db.execute("select key, value from settings order by key"))


def set_setting(session: Session, key: str, value: str | None) -> None:
    if value is None:
        session.db.execute("delete from settings where key = ?", (key,))
    else:
        session.db.execute(
            "insert or replace into settings (key, value) values (?, ?)", (key, value)
        )
