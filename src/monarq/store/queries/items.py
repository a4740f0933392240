"""Attempts of items, on both engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Raw

from monarq.ids import message_id
from monarq.model import Attempt, AttemptOutcome, LoggedAttempt, Page
from monarq.store import paging, sealing
from monarq.store.queries.database import Queries, find_queue
from monarq.times import Micros

# `cross join` keeps SQLite from beginning with the queues.
_ATTEMPTS = """
select a.id, a.partition_id, a.seq, q.name, a.attempt, a.started_at, a.ended_at, a.outcome,
    a.consumer, a.error, a.result
from monarq.attempts a cross join monarq.queues q
where q.id = a.queue_id
"""


async def history(db: Queries, partition_id: int, seq: int) -> list[Attempt]:
    """Return the finished attempts of an item, oldest first."""
    rows = await db.fetch(
        f"{_ATTEMPTS} and a.partition_id = $1 and a.seq = $2 order by a.id", partition_id, seq
    )
    return [Attempt(**_attempt_fields(db, row)) for row in rows]


async def list_attempts(
    db: Queries, queue: str | None, limit: int, after: str | None
) -> Page[LoggedAttempt]:
    last = paging.position(after, "attempts", int) or 0
    condition, values = "", [last, limit + 1]
    if queue is not None:
        condition, values = "and a.queue_id = $3", [*values, (await find_queue(db, queue))[0]]
    rows = await db.fetch(f"{_ATTEMPTS} and a.id > $1 {condition} order by a.id limit $2", *values)
    found = paging.page(rows, limit, "attempts", lambda row: row[0])
    attempts = [
        LoggedAttempt(item_id=message_id(row[1], row[2]), queue=row[3], **_attempt_fields(db, row))
        for row in found.rows
    ]
    return Page(attempts, found.next)


def _attempt_fields(db: Queries, row: Sequence[Any]) -> dict[str, Any]:
    _, _, _, queue, attempt, started, ended, outcome, consumer, error, sealed_result = row
    result = sealing.open_result(sealed_result, db.cipher, queue)
    return {
        "attempt": attempt,
        "started_at": Micros(started),
        "ended_at": Micros(ended),
        "outcome": AttemptOutcome(outcome),
        "consumer": consumer,
        "error": sealing.open_error(error, db.cipher, queue),
        "raw_result": UNSET if result is None else Raw(result),
    }
