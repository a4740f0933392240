"""The calls of the contract that are no operations, and whose SQL runs on both engines."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable
from typing import TypeVar

from monarq.model import LoggedAttempt, MetricPoint, Page, PartitionStats, Standing
from monarq.store.queries import items, logs, partitions, standings
from monarq.store.queries.database import Queries

T = TypeVar("T")


class SharedCalls(abc.ABC):
    @abc.abstractmethod
    async def _query(
        self, work: Callable[[Queries], Awaitable[T]], *, writes: bool = False
    ) -> T: ...

    async def list_attempts(
        self, *, queue: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[LoggedAttempt]:
        return await self._query(lambda db: items.list_attempts(db, queue, limit, after))

    async def metrics(
        self,
        *,
        queue: str | None = None,
        since: int | None = None,
        until: int | None = None,
        limit: int = 1000,
        after: str | None = None,
    ) -> Page[MetricPoint]:
        return await self._query(lambda db: logs.metrics(db, queue, since, until, limit, after))

    async def get_partition(self, partition_id: int) -> PartitionStats:
        return await self._query(lambda db: partitions.get_partition(db, partition_id))

    async def get_settings(self) -> dict[str, str]:
        return await self._query(logs.get_settings)

    async def set_setting(self, key: str, value: str | None) -> None:
        await self._query(lambda db: logs.set_setting(db, key, value), writes=True)

    async def list_standings(
        self, queue: str, group: str | None, *, limit: int = 100, after: str | None = None
    ) -> Page[Standing]:
        return await self._query(
            lambda db: standings.list_standings(db, queue, group, limit, after)
        )

    async def standings_of(self, partition_id: int) -> dict[str, Standing]:
        return await self._query(lambda db: standings.standings_of(db, partition_id))

    async def list_failing(self, queue: str, group: str, *, limit: int = 100) -> list[Standing]:
        return await self._query(lambda db: standings.list_failing(db, queue, group, limit))
