"""Counters of queues and groups, added up during a transaction and written once at its end.

They are what stats, lag and `maxSize` are read from: nothing here ever counts rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from monarq.model import Queue, QueueCounts, QueueInfo, QueueKind

QUEUE = 0
"""The group id under which a queue's own counters are kept."""

COLUMNS = (
    "pushed",
    "removed",
    "position",
    "partitions",
    "completed",
    "failed",
    "dead",
    "dead_letters",
    "scheduled",
    "ready",
    "leased",
    "done",
    "cancelled",
    "dead_items",
)
STATE_COLUMNS = {
    "scheduled": "scheduled",
    "ready": "ready",
    "leased": "leased",
    "done": "done",
    "dead": "dead_items",
    "cancelled": "cancelled",
}

_ADD = f"""
insert into counters (queue_id, group_id, {", ".join(COLUMNS)})
values (?, ?{", ?" * len(COLUMNS)})
on conflict (queue_id, group_id) do update set
{", ".join(f"{column} = {column} + excluded.{column}" for column in COLUMNS)}
"""
# Only where it is not so yet: to set it again would write a page of the index of what has changed.
_CHANGE = "update counters set changed = 1 where queue_id = ? and group_id = 0 and changed = 0"
_READ = f"select {', '.join(COLUMNS)} from counters where queue_id = ? and group_id = ?"

Deltas = dict[tuple[int, int], dict[str, int]]


class Counters:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._deltas: Deltas = {}

    def begin(self, queue_id: int, group_id: int = QUEUE) -> None:
        """For a new queue or group: a group counts for `pending` from the start."""
        self._db.execute(
            "insert into counters (queue_id, group_id) values (?, ?)", (queue_id, group_id)
        )

    def add(self, queue_id: int, group_id: int = QUEUE, **deltas: int) -> None:
        sums = self._deltas.setdefault((queue_id, group_id), {})
        for column, delta in deltas.items():
            sums[column] = sums.get(column, 0) + delta

    def add_for_group(
        self, queue_id: int, group_id: int, *, completed: int = 0, failed: int = 0, dead: int = 0
    ) -> None:
        """What happened to a group's messages counts for its queue too."""
        for key in (QUEUE, group_id):
            self.add(queue_id, key, completed=completed, failed=failed, dead=dead)

    def move(self, queue_id: int, was: str | None, becomes: str | None, count: int = 1) -> None:
        """Items of a work queue went from one state to another; None: they came or went."""
        if was is not None:
            self.add(queue_id, **{STATE_COLUMNS[was]: -count})
        if becomes is not None:
            self.add(queue_id, **{STATE_COLUMNS[becomes]: count})

    def read(self, queue_id: int, group_id: int = QUEUE) -> dict[str, int]:
        """Return the counters, with what this transaction has added."""
        row = self._db.execute(_READ, (queue_id, group_id)).fetchone()
        values = dict(zip(COLUMNS, row or (0,) * len(COLUMNS), strict=True))
        for column, delta in self._deltas.get((queue_id, group_id), {}).items():
            values[column] += delta
        return values

    def pending(self, queue: Queue) -> int:
        """What `maxSize` is about."""
        own = self.read(queue.id)
        if queue.kind is QueueKind.WORK:
            return own["scheduled"] + own["ready"] + own["leased"]
        return own["pushed"] - min(self._positions(queue.id), default=own["removed"])

    def describe(self, queue: Queue) -> QueueInfo:
        own = self.read(queue.id)
        is_work = queue.kind is QueueKind.WORK
        return queue.with_counts(
            own["partitions"],
            QueueCounts(
                stored=own["pushed"] - own["removed"],
                pending=self.pending(queue),
                pushed=own["pushed"],
                completed=own["completed"],
                failed=own["failed"],
                dead=own["dead"],
                dead_letters=own["dead_letters"],
                states={s: own[column] for s, column in STATE_COLUMNS.items()} if is_work else {},
            ),
        )

    def _positions(self, queue_id: int) -> list[int]:
        rows = self._db.execute(
            "select group_id, position from counters where queue_id = ? and group_id > 0",
            (queue_id,),
        )
        positions = dict(rows)
        for (changed, group_id), deltas in self._deltas.items():
            if changed == queue_id and group_id != QUEUE:
                moved = deltas.get("position", 0)
                positions[group_id] = positions.get(group_id, 0) + moved
        return list(positions.values())

    def forget_group(self, queue_id: int, group_id: int) -> None:
        self._deltas.pop((queue_id, group_id), None)
        self._db.execute(
            "delete from counters where queue_id = ? and group_id = ?", (queue_id, group_id)
        )

    def forget_queue(self, queue_id: int) -> None:
        for key in [key for key in self._deltas if key[0] == queue_id]:
            del self._deltas[key]
        self._db.execute("delete from counters where queue_id = ?", (queue_id,))

    def snapshot(self) -> Deltas:
        return {key: dict(sums) for key, sums in self._deltas.items()}

    def restore(self, snapshot: Mapping[tuple[int, int], dict[str, int]]) -> None:
        self._deltas = dict(snapshot)

    def flush(self) -> None:
        rows = [
            (*key, *(sums.get(column, 0) for column in COLUMNS))
            for key, sums in self._deltas.items()
            if any(sums.values())
        ]
        if rows:
            self._db.executemany(_ADD, rows)
            self._db.executemany(_CHANGE, [row[:1] for row in rows if row[1] == QUEUE])
        self._deltas.clear()
