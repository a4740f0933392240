"""The contract's calls about queues and groups."""

from __future__ import annotations

from monarq.model import Page, Queue, QueueStats, StartFrom
from monarq.store.contract.groups import KeepingGroups
from monarq.store.contract.queues import KeepingQueues
from monarq.store.postgres import groups, queues
from monarq.store.postgres.calls import Calls


class QueueCalls(Calls, KeepingQueues, KeepingGroups):
    # --- queues --------------------------------------------------------------------------

    async def get_queue(self, name: str) -> Queue:
        return await queues.get_queue(self._database, name)

    async def list_queues(
        self,
        *,
        namespace: str | None = None,
        task: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Queue]:
        return await queues.list_queues(self._database, namespace, task, limit, after)

    async def delete_queue(self, name: str, *, commands: bool = True) -> bool:
        return await queues.delete_queue(self._database, self._catalog, name, commands=commands)

    async def clear_queue(
        self,
        name: str,
        *,
        scheduled_only: bool = False,
        keep_leased: bool = False,
        commands: bool = True,
    ) -> int:
        return await queues.clear_queue(
            self._database, name, scheduled_only, keep_leased, commands=commands
        )

    async def set_paused(self, name: str, paused: bool, *, commands: bool = True) -> Queue:
        return await queues.set_paused(
            self._database, self._catalog, name, paused, commands=commands
        )

    async def queue_stats(
        self, *, queue: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[QueueStats]:
        return await queues.queue_stats(self._database, queue, limit, after)

    # --- groups --------------------------------------------------------------------------

    async def subscribe(
        self,
        group: str,
        start: StartFrom | int,
        *,
        queue: str | None = None,
        namespace: str | None = None,
        task: str | None = None,
    ) -> int:
        return await groups.subscribe(self._database, group, start, queue, namespace, task)
