"""Queues: to look at, pause and remove them."""

from __future__ import annotations

import abc

from monarq.model import Page, Queue, QueueStats


class KeepingQueues(abc.ABC):
    @abc.abstractmethod
    async def get_queue(self, name: str) -> Queue:
        """The queue, or `NotFoundError`."""

    @abc.abstractmethod
    async def list_queues(
        self,
        *,
        namespace: str | None = None,
        task: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Queue]:
        """By name."""

    @abc.abstractmethod
    async def delete_queue(self, name: str, *, commands: bool = True) -> bool:
        """Remove the queue with all that belongs to it, its dead letters too. Commands that run
        end, as their leases do.

        Whether there was one. `ConflictError` if it is another queue's dead queue; `ForbiddenError`
        if it runs commands and the caller may not work on commands.
        """

    @abc.abstractmethod
    async def clear_queue(
        self,
        name: str,
        *,
        scheduled_only: bool = False,
        keep_leased: bool = False,
        commands: bool = True,
    ) -> int:
        """Remove the stored messages or items and return their number. The queue and its dead
        letters stay; leases end; groups stay, at the end.

        Of a work queue, `scheduled_only` removes only the scheduled items, and `keep_leased`
        leaves the items that are under a live lease. `ConflictError` for an ordered queue,
        `ForbiddenError` as `delete_queue`.
        """

    @abc.abstractmethod
    async def set_paused(self, name: str, paused: bool, *, commands: bool = True) -> Queue:
        """A paused queue takes pushes and acks; its pops find nothing. `ForbiddenError` as
        `delete_queue`."""

    @abc.abstractmethod
    async def queue_stats(
        self, *, queue: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[QueueStats]:
        """Counters of one queue, or of all by name. Costs the same at any backlog."""
