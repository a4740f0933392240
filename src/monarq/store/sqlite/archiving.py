"""Up to where partitions are archived: what retention waits for."""

from __future__ import annotations

from collections.abc import Mapping

from monarq.store.positions import not_there_yet
from monarq.store.sqlite.messages import ordered_queue
from monarq.store.sqlite.session import Session


def set_archived(session: Session, queue: str, positions: Mapping[int, int]) -> None:
    found = ordered_queue(session, queue)
    for partition_id, seq in sorted(positions.items()):
        row = session.db.execute(
            "select last_seq from partitions where id = ? and queue_id = ?",
            (partition_id, found.id),
        ).fetchone()
        if row is not None and seq > row[0]:
            raise not_there_yet(partition_id)
    session.db.executemany(
        """update partitions set archived_seq = :seq,
            check_at = case when emptied_at is null then :now else check_at end
        where id = :id and queue_id = :queue and archived_seq < :seq""",
        [
            {"id": partition_id, "seq": seq, "queue": found.id, "now": session.now}
            for partition_id, seq in positions.items()
        ],
    )


def archived(session: Session, queue: str) -> dict[int, int]:
    rows = session.db.execute(
        "select id, archived_seq from partitions where queue_id = ? and archived_seq > 0",
        (ordered_queue(session, queue).id,),
    )
    return dict(rows.fetchall())
