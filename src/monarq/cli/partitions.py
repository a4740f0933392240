"""The partitions of a queue, with what is kept of each, wherever the broker is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monarq.model import Page, PartitionStats

if TYPE_CHECKING:
    from monarq.client.async_client import AsyncClient


async def all_partitions(client: AsyncClient, queue: str) -> list[PartitionStats]:
    """By partition id."""
    link: Any = client.link
    # A store has the call itself; of a broker behind HTTP it is asked as the API has it.
    ask = getattr(link.admin, "list_partitions", None)
    found: list[PartitionStats] = []
    after = None
    while True:
        if ask is None:
            page = await _over_http(link, queue, after)
        else:
            page = await ask(queue, limit=1000, after=after)
        found += page.rows
        after = page.next
        if after is None:
            return found


async def _over_http(link: Any, queue: str, after: str | None) -> Page[PartitionStats]:
    from monarq.times import parse_time
    from monarq.wire.queues import PartitionsAnswer

    query = {"queue": queue, "limit": 1000, "after": after}
    answer: PartitionsAnswer = await link.call(
        "GET", "/api/v1/resources/partitions", PartitionsAnswer, query=query
    )
    rows = [
        PartitionStats(
            queue=row.queue,
            partition_id=int(row.id),
            partition=row.name,
            first_seq=row.first_seq,
            last_seq=row.last_seq,
            pending=row.pending,
            last_at=parse_time(row.last_pushed_at, "lastPushedAt"),
        )
        for row in answer.partitions
    ]
    return Page(rows, answer.next)
