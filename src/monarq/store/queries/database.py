"""What a handler that serves both engines gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from monarq.crypto import Cipher
from monarq.errors import NotFoundError
from monarq.model import QueueKind
from monarq.operations.handlers import Handlers


class Queries(Protocol):
    @property
    def cipher(self) -> Cipher | None: ...

    def now(self) -> int | None:
        """Return the time for `monarq.time`; None lets PostgreSQL's clock decide."""

    async def fetch(self, sql: str, *args: Any) -> Sequence[Any]:
        """Run one statement and return its rows."""

    def pushed_at(self, partition: str, seq: str) -> str:
        """Return SQL for when a message of an ordered queue was pushed. SQLite finds segments by
        their last seq, PostgreSQL by their first. Means nothing if the message is not there yet."""


handles: Handlers[Queries] = Handlers()


async def find_queue(db: Queries, name: str) -> tuple[int, QueueKind]:
    """Return a queue's id and kind, or raise `NotFoundError`."""
    rows = await db.fetch("select id, kind from monarq.queues where name = $1", name)
    if not rows:
        raise NotFoundError(f"there is no queue {name!r}")
    [(queue_id, kind)] = rows
    return queue_id, QueueKind(kind)


async def find_group(db: Queries, queue: str, group: str) -> tuple[int, int]:
    """Return the ids of a queue and of a group in it, or raise `NotFoundError`."""
    queue_id, _ = await find_queue(db, queue)
    rows = await db.fetch(
        "select id from monarq.groups where queue_id = $1 and name = $2", queue_id, group
    )
    if not rows:
        raise NotFoundError(f"queue {queue!r} has no group {group!r}")
    return queue_id, rows[0][0]
