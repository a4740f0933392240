"""The names in the delivery log, and the history of the counters."""

from __future__ import annotations

from monarq.clock import SECOND
from monarq.store.queries.logs import DELIVERY_COLUMNS
from monarq.store.sqlite.session import Session

MINUTE = 60 * SECOND
DELIVERIES = f"""
select d.id, q.name, d.partition_name, d.group_name, {DELIVERY_COLUMNS}
from monarq.deliveries d cross join monarq.queues q on q.id = d.queue_id
"""


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
