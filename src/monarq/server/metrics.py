"""All that is measured, put together: this process, those that share its port, and the store."""

from __future__ import annotations

from pathlib import Path

from monarq.broker.broker import Broker
from monarq.config import Settings
from monarq.server.broker_metrics import measured, standing
from monarq.server.connection_metrics import connection_families
from monarq.server.http import Counters
from monarq.server.metric_families import Family, added_up, counter
from monarq.server.process_metrics import process_families
from monarq.server.request_metrics import RequestMetrics
from monarq.server.snapshot import Snapshots
from monarq.server.store_metrics import StoreMetrics
from monarq.server.worker_metrics import WorkerMetrics


class Metrics:
    """One a process. `requests` is told of every answer; `connections` counts what the HTTP
    endpoint that it is given to does."""

    def __init__(self, broker: Broker, settings: Settings, snapshots: Snapshots) -> None:
        self.requests = RequestMetrics()
        self.connections = Counters()
        self._broker = broker
        self._store = StoreMetrics(snapshots, lambda: broker.store, settings.metrics_queue_labels)
        self._workers: WorkerMetrics | None = None

    async def join(self, directory: Path, worker: int) -> None:
        """Share the metrics with the other processes on this port, by sockets in `directory`."""
        self._workers = WorkerMetrics(directory, worker)
        await self._workers.start(self.of_this_process)

    async def close(self) -> None:
        await self._store.close()
        if self._workers is not None:
            await self._workers.close()

    def of_this_process(self) -> list[Family]:
        return [
            *self.requests.families(),
            *connection_families(self.connections),
            *measured(self._broker.measures),
            *standing(self._broker.health()),
            *process_families(),
        ]

    async def families(self) -> list[Family]:
        """Of all processes on this port, and of the store."""
        processes = [self.of_this_process()]
        if self._workers is not None:
            processes += await self._workers.of_others()
            unreachable = float(self._workers.unreachable)
            processes[0].append(
                counter(
                    "monarq_workers_unreachable",
                    "Times that a process on this port did not tell its metrics",
                    [((), unreachable)],
                )
            )
        return [*added_up(processes), *await self._store.families()]
