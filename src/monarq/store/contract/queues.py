"""Queues: to look at, pause and remove them."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from monarq.model import Queue, QueueInfo


class KeepingQueues(abc.ABC):
    @abc.abstractmethod
    async def queue_settings(self, name: str) -> Queue:
        """Return the queue without its counters, or raise `NotFoundError`."""

    @abc.abstractmethod
    async def describe_queues(self, queues: Sequence[str]) -> list[QueueInfo]:
        """As `GetQueue`, for at most 1000 queues in one call. Queues that do not exist are left
        out."""
