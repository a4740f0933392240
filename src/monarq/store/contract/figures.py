"""Figures that the API shows, each in one call whatever the backlog."""

from __future__ import annotations

import abc
from typing import Any

from monarq.model import MetricPoint, Page, PartitionStats


class Figures(abc.ABC):
    @abc.abstractmethod
    async def get_partition(self, partition_id: int) -> PartitionStats:
        """The partition, or `NotFoundError`."""

    @abc.abstractmethod
    async def metrics_before(
        self, at: int, *, queue: str | None = None, limit: int = 1000, after: str | None = None
    ) -> Page[MetricPoint]:
        """The last point before a time of each queue that has one, by queue id: what the first
        points from then on are differences to."""

    @abc.abstractmethod
    async def health_figures(self) -> dict[str, Any]:
        """How the database itself fares, by names that differ between stores; always `store`,
        its kind, and `databaseBytes`. Reads statistics, never a queue's tables."""
