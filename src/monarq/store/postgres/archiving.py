"""Up to where partitions are archived: what retention waits for."""

from __future__ import annotations

from collections.abc import Mapping

from monarq.model import QueueKind
from monarq.store.positions import not_there_yet
from monarq.store.postgres.database import Database
from monarq.store.postgres.queues import get_queue_of


async def set_archived(database: Database, queue: str, positions: Mapping[int, int]) -> None:
    found = await get_queue_of(database, queue, QueueKind.ORDERED)
    wrong = await database.fetchval(
        "select monarq.set_archived(monarq.time($1), $2, $3, $4)",
        database.now(),
        found.id,
        list(positions.keys()),
        list(positions.values()),
    )
    if wrong is not None:
        raise not_there_yet(wrong)


async def archived(database: Database, queue: str) -> dict[int, int]:
    found = await get_queue_of(database, queue, QueueKind.ORDERED)
    rows = await database.fetch(
        "select id, archived_seq from monarq.partitions where queue_id = $1 and archived_seq > 0",
        found.id,
    )
    return {row["id"]: row["archived_seq"] for row in rows}
