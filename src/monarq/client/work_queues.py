"""Sees to it that a work queue exists before jobs are pushed to it: a push alone would make an
ordered one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monarq.client.link import Link
from monarq.errors import ConflictError, NotFoundError
from monarq.model import QueueKind


class WorkQueues:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._known: set[str] = set()

    async def ensure(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        """Make it with these options, if it does not exist."""
        if name in self._known:
            return
        try:
            queue = await self._link.admin.get_queue(name)
        except NotFoundError:
            queue = await self._link.admin.configure(
                name, kind=QueueKind.WORK, options=options or {}
            )
        if queue.kind is not QueueKind.WORK:
            raise ConflictError(f"queue {name!r} is ordered, and jobs need a work queue")
        self._known.add(name)
