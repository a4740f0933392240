"""Logs, and passing over messages."""

from __future__ import annotations

import abc

from monarq.model import Delivery, LoggedAttempt, MetricPoint, Page
from monarq.operations.messages import ListMessages


class Inspecting(abc.ABC):
    @abc.abstractmethod
    async def pass_messages(self, request: ListMessages) -> ListMessages:
        """Pass over the rows before the offset without reading them, as far as that is possible.
        Return the request for what is left to read.

        Deleted messages are no rows: of a partition that has some, the part before the offset's
        end is left to read, and so are all items of a work queue."""

    @abc.abstractmethod
    async def list_deliveries(
        self, *, queue: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[Delivery]:
        """The delivery log of ordered queues, by id."""

    @abc.abstractmethod
    async def list_attempts(
        self, *, queue: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[LoggedAttempt]:
        """The finished attempts of work queues, by the order in which they ended."""

    @abc.abstractmethod
    async def metrics(
        self,
        *,
        queue: str | None = None,
        since: int | None = None,
        until: int | None = None,
        limit: int = 1000,
        after: str | None = None,
    ) -> Page[MetricPoint]:
        """The counters' history, one point a queue and minute in which something changed."""
