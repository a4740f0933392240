"""Queues as rows: reading them, with a cache, and making new ones.

A row is decoded once per version of the queue. Knows nothing of what is in a queue.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from monarq.model import Queue, QueueKind, QueueOptions

OPTION_COLUMNS = tuple(info.name for info in msgspec.structs.fields(QueueOptions))
_BOOLEANS = {
    info.name for info in msgspec.structs.fields(QueueOptions) if isinstance(info.default, bool)
}
_LABELS = ("id", "name", "kind", "namespace", "task", "paused", "version", "created_at")
SELECT = f"select {', '.join((*_LABELS, *OPTION_COLUMNS))} from queues"

_INSERT = f"""
insert into queues (name, kind, namespace, task, created_at, {", ".join(OPTION_COLUMNS)})
values (?, ?, ?, ?, ?{", ?" * len(OPTION_COLUMNS)})
"""


def to_queue(row: tuple[Any, ...]) -> Queue:
    labels, values = row[: len(_LABELS)], row[len(_LABELS) :]
    options: dict[str, Any] = {
        name: bool(value) if name in _BOOLEANS else value
        for name, value in zip(OPTION_COLUMNS, values, strict=True)
    }
    number, name, kind, namespace, task, paused, version, created_at = labels
    return Queue(
        id=number,
        name=name,
        kind=QueueKind(kind),
        namespace=namespace,
        task=task,
        paused=bool(paused),
        version=version,
        created_at=created_at,
        options=QueueOptions(**options),
    )


def option_values(options: QueueOptions) -> tuple[Any, ...]:
    return tuple(getattr(options, name) for name in OPTION_COLUMNS)


def insert_queue(
    db: sqlite3.Connection,
    name: str,
    kind: QueueKind,
    namespace: str,
    task: str,
    created_at: int,
    options: QueueOptions,
) -> None:
    db.execute(_INSERT, (name, kind, namespace, task, created_at, *option_values(options)))


class QueueCache:
    """Decoded queues by id, good while their version is the same. Whoever rolls back must
    clear it: ids and versions may be given again then."""

    def __init__(self) -> None:
        self._queues: dict[int, Queue] = {}

    def clear(self) -> None:
        self._queues.clear()

    def named(self, db: sqlite3.Connection, name: str) -> Queue | None:
        row = db.execute("select id, version from queues where name = ?", (name,)).fetchone()
        return None if row is None else self._current(db, *row)

    def numbered(self, db: sqlite3.Connection, queue_id: int) -> Queue | None:
        row = db.execute("select id, version from queues where id = ?", (queue_id,)).fetchone()
        return None if row is None else self._current(db, *row)

    def _current(self, db: sqlite3.Connection, queue_id: int, version: int) -> Queue:
        queue = self._queues.get(queue_id)
        if queue is None or queue.version != version:
            queue = to_queue(db.execute(f"{SELECT} where id = ?", (queue_id,)).fetchone())
            self._queues[queue_id] = queue
        return queue
