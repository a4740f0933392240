"""The partitions of a queue, with what is kept of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monarq.model.pages import walk

if TYPE_CHECKING:
    from monarq.client.async_client import AsyncClient
    from monarq.model import PartitionStats


async def all_partitions(client: AsyncClient, queue: str) -> list[PartitionStats]:
    """By partition id."""
    rows = walk(lambda limit, after: client.admin.list_partitions(queue, limit=limit, after=after))
    return [row async for row in rows]
