"""The partitions of a queue, with what is kept of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monarq.client.async_client import AsyncClient
    from monarq.model import PartitionStats


async def all_partitions(client: AsyncClient, queue: str) -> list[PartitionStats]:
    """By partition id."""
    found: list[PartitionStats] = []
    after = None
    while True:
        page = await client.admin.list_partitions(queue, limit=1000, after=after)
        found += page.rows
        after = page.next
        if after is None:
            return found
