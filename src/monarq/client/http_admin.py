"""The calls beside the hot path, over HTTP: queues, groups, dead letters, and all others."""

from __future__ import annotations

from monarq.client.http_entries import HttpEntries
from monarq.client.http_items import item_body
from monarq.client.http_operations import quoted
from monarq.client.http_reading import (
    partition_of,
    pushed_of,
    queue_of,
    stats_of,
)
from monarq.model import (
    Page,
    PartitionStats,
    Push,
    Pushed,
    Queue,
    QueueStats,
)
from monarq.store.validation import check_push
from monarq.store.validation.calls import checks_arguments
from monarq.wire.push import PushedItem
from monarq.wire.queues import (
    PartitionsAnswer,
    QueueCleared,
    QueueDeleted,
    QueuePaused,
    QueueRow,
    QueuesAnswer,
)

_QUEUES = "/api/v1/resources/queues"
_GROUPS = "/api/v1/consumer-groups"


@checks_arguments
class HttpAdmin(HttpEntries):
    # --- queues ------------------------------------------------------------------------------

    async def get_queue(self, name: str) -> Queue:
        return queue_of(await self._queue_row(name))

    async def _queue_row(self, name: str) -> QueueRow:
        row: QueueRow = await self._call("GET", f"{_QUEUES}/{quoted(name)}", QueueRow)
        return row

    async def list_queues(
        self,
        *,
        namespace: str | None = None,
        task: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Queue]:
        query = {"namespace": namespace, "task": task, "limit": limit, "after": after}
        answer = await self._call("GET", _QUEUES, QueuesAnswer, query=query)
        return Page([queue_of(row) for row in answer.queues], answer.next)

    async def delete_queue(self, name: str) -> bool:
        answer = await self._call("DELETE", f"{_QUEUES}/{quoted(name)}", QueueDeleted)
        return bool(answer.deleted)

    async def restore(self, push: Push) -> list[Pushed]:
        check_push(push)
        body = {
            "items": [item_body(item) for item in push.items],
            "producer": push.producer,
            "commands": push.commands,
        }
        answer = await self._call("POST", "/api/v1/import", list[PushedItem], body=body)
        return [pushed_of(each) for each in answer]

    async def clear_queue(
        self, name: str, *, scheduled_only: bool = False, keep_leased: bool = False
    ) -> int:
        body = {"scheduledOnly": scheduled_only, "keepLeased": keep_leased}
        answer = await self._call(
            "POST", f"{_QUEUES}/{quoted(name)}/clear", QueueCleared, body=body
        )
        return int(answer.cleared)

    async def set_paused(self, name: str, paused: bool) -> Queue:
        verb = "pause" if paused else "resume"
        await self._call("POST", f"{_QUEUES}/{quoted(name)}/{verb}", QueuePaused)
        return await self.get_queue(name)

    async def queue_stats(
        self, *, queue: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[QueueStats]:
        if queue is not None:
            return Page([stats_of(await self._queue_row(queue))])
        query = {"limit": limit, "after": after}
        answer = await self._call("GET", _QUEUES, QueuesAnswer, query=query)
        return Page([stats_of(row) for row in answer.queues], answer.next)

    async def list_partitions(
        self, queue: str, *, limit: int = 100, after: str | None = None
    ) -> Page[PartitionStats]:
        query = {"queue": queue, "limit": limit, "after": after}
        path = "/api/v1/resources/partitions"
        answer = await self._call("GET", path, PartitionsAnswer, query=query)
        return Page([partition_of(row) for row in answer.partitions], answer.next)
