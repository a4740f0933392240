"""The contract's calls about queues and groups."""

from __future__ import annotations

from collections.abc import Sequence

from monarq.model import Queue, QueueInfo, StartFrom
from monarq.store.contract.groups import KeepingGroups
from monarq.store.contract.queues import KeepingQueues
from monarq.store.postgres import groups, queues
from monarq.store.postgres.calls import Calls
from monarq.store.postgres.queues import describe_queues


class QueueCalls(Calls, KeepingQueues, KeepingGroups):
    # --- queues --------------------------------------------------------------------------

    async def queue_settings(self, name: str) -> Queue:
        return await queues.get_queue(self._database, name)

    async def describe_queues(self, queues: Sequence[str]) -> list[QueueInfo]:
        return await describe_queues(self._database, queues)

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
