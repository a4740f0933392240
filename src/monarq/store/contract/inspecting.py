"""Messages and logs, looked at and changed one by one."""

from __future__ import annotations

import abc

from monarq.model import Delivery, LoggedAttempt, MetricPoint, Page, StoredMessage


class Inspecting(abc.ABC):
    @abc.abstractmethod
    async def list_messages(
        self,
        queue: str,
        *,
        partition: str | None = None,
        first_seq: int | None = None,
        created_from: int | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[StoredMessage]:
        """By partition id and seq."""

    @abc.abstractmethod
    async def pass_messages(
        self,
        queue: str,
        offset: int,
        *,
        partition: str | None = None,
        first_seq: int | None = None,
        after: str | None = None,
    ) -> tuple[str | None, int]:
        """Pass over the first `offset` rows of `list_messages` without reading them. Return the
        page token to go on from, and how many rows are left to pass over by reading. Deleted
        messages are no rows: of a partition that has some, the part before the offset's end is
        left to read."""

    @abc.abstractmethod
    async def get_message(self, partition_id: int, transaction_id: str) -> StoredMessage:
        """The message, with its state in each group, or `NotFoundError`."""

    @abc.abstractmethod
    async def delete_message(
        self, partition_id: int, transaction_id: str, *, commands: bool = True
    ) -> None:
        """Remove its payload and keep it from every group. Its seq and its transaction id
        stay taken. Of a work queue: remove the item. `ConflictError` if it is leased.

        Here and below: without `commands` the caller may not work on shell commands, and an item
        of a queue that runs commands is refused with `ForbiddenError`."""

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
