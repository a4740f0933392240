"""Sees to it that a work queue exists before jobs are pushed to it: a push alone would make an
ordered one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from monarq.client.link import Link
from monarq.errors import ConflictError, InvalidRequestError, NotFoundError
from monarq.model import ConfiguredQueue, QueueInfo, QueueKind, QueueOptions


class WorkQueues:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._known: dict[str, QueueOptions] = {}

    async def ensure(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        """Make it with these options, if it does not exist."""
        if name in self._known:
            return
        queue: ConfiguredQueue | QueueInfo
        try:
            queue = await self._link.admin.get_queue(name)
        except NotFoundError:
            queue = await self._link.admin.configure(name, kind=QueueKind.WORK, options=options)
        if queue.kind is not QueueKind.WORK:
            raise ConflictError(f"queue {name!r} is ordered, and jobs need a work queue")
        self._known[name] = queue.options

    async def ensure_memory(self, name: str, seconds: float) -> None:
        """Refuses if the queue forgets what is finished sooner than that: a transaction id is
        known as long as its item is kept."""
        await self.ensure(name)
        if _memory(self._known[name]) >= seconds:
            return
        # It may have been told to keep them longer since it was looked at.
        queue = await self._link.admin.get_queue(name)
        self._known[name] = queue.options
        if _memory(queue.options) < seconds:
            raise InvalidRequestError(
                f"queue {name!r} forgets finished jobs after {_memory(queue.options):.15g} s, so "
                f"that unique_for cannot be {seconds:.15g} there: let its "
                "completed_retention_seconds be as much"
            )


def _memory(options: QueueOptions) -> float:
    """For how many seconds it keeps what is finished."""
    if not options.retention_enabled:
        return math.inf
    return options.completed_retention_seconds or math.inf
