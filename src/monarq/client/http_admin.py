"""The calls beside the hot path, over HTTP: queues, groups, dead letters, and all others."""

from __future__ import annotations

from monarq.client.http_entries import HttpEntries
from monarq.client.http_items import item_body
from monarq.client.http_reading import (
    partition_of,
    pushed_of,
)
from monarq.model import (
    Page,
    PartitionStats,
    Push,
    Pushed,
)
from monarq.store.validation import check_push
from monarq.store.validation.calls import checks_arguments
from monarq.wire.push import PushedItem
from monarq.wire.queues import (
    PartitionsAnswer,
)


@checks_arguments
class HttpAdmin(HttpEntries):
    # --- queues ------------------------------------------------------------------------------

    async def restore(self, push: Push) -> list[Pushed]:
        check_push(push)
        body = {
            "items": [item_body(item) for item in push.items],
            "producer": push.producer,
            "commands": push.commands,
        }
        answer = await self._call("POST", "/api/v1/import", list[PushedItem], body=body)
        return [pushed_of(each) for each in answer]

    async def list_partitions(
        self, queue: str, *, limit: int = 100, after: str | None = None
    ) -> Page[PartitionStats]:
        query = {"queue": queue, "limit": limit, "after": after}
        path = "/api/v1/resources/partitions"
        answer = await self._call("GET", path, PartitionsAnswer, query=query)
        return Page([partition_of(row) for row in answer.partitions], answer.next)
