"""What the store holds, for the metrics: depth and lag by queue and group.

Made of the snapshot of counters, which is at most `CACHE_SECONDS` old however often the metrics are
scraped. A store with very many queues does not make as many labels: only so many queues have their
own, the largest when first seen. The others are one, `other`. Which queue has a label stays so
while the queue lives: a counter that moved between the two would look as if it had been reset.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from monarq.clock import SECOND, SystemClock
from monarq.errors import MonarqError, NotFoundError
from monarq.model import GroupFlow, QueueFlow, QueueKind
from monarq.server.metric_families import Family, Labels, counter, gauge
from monarq.server.snapshot import GroupCounters, QueueCounters, Snapshots, off_loop
from monarq.store.contract import Store

logger = logging.getLogger("monarq.metrics")

CACHE_SECONDS = 5.0
PATIENCE_SECONDS = 2.0
MOST_WORK_QUEUES = 50
"""Of which the next item's age is asked for, those with most to do."""
OTHER = "other"
_AGE = "How long ago the store was asked for what is told of it"


class StoreMetrics:
    def __init__(self, snapshots: Snapshots, store: Callable[[], Store], queue_labels: int) -> None:
        """`store` may raise a `MonarqError` while there is none."""
        self._snapshots = snapshots
        self._store = store
        self._limit = queue_labels
        self._own: set[str] = set()
        self._seen: set[str] = set()
        self._families: list[Family] = []
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def families(self) -> list[Family]:
        """As they were read last, a few seconds ago; older ones only while the store is slow to
        answer, and none while it is down."""
        now = asyncio.get_running_loop().time
        if now() - self._read_at >= CACHE_SECONDS:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read())
            done, _ = await asyncio.wait({self._reading}, timeout=PATIENCE_SECONDS)
            for reading in done:
                reading.result()
        if not self._families:
            return []
        age = now() - self._read_at
        return [*self._families, gauge("monarq_store_metrics_age_seconds", _AGE, [((), age)])]

    async def close(self) -> None:
        if self._reading is not None and not self._reading.done():
            self._reading.cancel()
            await asyncio.wait({self._reading})

    async def _read(self) -> None:
        snapshots = self._snapshots
        parts = (snapshots.queues, snapshots.groups, snapshots.figures)
        try:
            queues = await snapshots.queues.get(CACHE_SECONDS)
            groups = await snapshots.groups.get(CACHE_SECONDS)
            figures = await snapshots.figures.get(CACHE_SECONDS)
            ages = await _ages(self._store(), _by_name(queues))
        except MonarqError as error:
            logger.debug("no metrics of the store: %s", error)
            self._families = []
            self._read_at = asyncio.get_running_loop().time()
        else:
            self._families = await off_loop(
                len(queues.flows), lambda: self._made(queues, groups, ages, figures)
            )
            self._read_at = min(part.read_at for part in parts)

    def _made(
        self,
        queues: QueueCounters,
        groups: GroupCounters,
        ages: list[tuple[str, float]],
        figures: Mapping[str, Any],
    ) -> list[Family]:
        return [
            *self._of_queues(_by_name(queues)),
            *self._of_groups(groups),
            *_of(figures),
            gauge(
                "monarq_queue_next_item_age_seconds",
                "Age of the item that is next in a work queue",
                _largest((self._label(queue), age) for queue, age in ages),
                ("queue",),
            ),
        ]

    def _of_queues(self, queues: list[QueueFlow]) -> list[Family]:
        self._choose(queues)
        kinds = [(queue, (self._label(queue.queue), queue.kind.value)) for queue in queues]
        own = [labels for _, labels in kinds if labels[0] != OTHER]
        families = [
            gauge(
                "monarq_queue_pending",
                "Messages or items that are not done, for the group furthest behind",
                _summed((labels, queue.pending) for queue, labels in kinds),
                ("queue", "kind"),
            ),
            gauge(
                "monarq_queue_stored",
                "Messages or items that are kept",
                _summed((labels, queue.stored) for queue, labels in kinds),
                ("queue", "kind"),
            ),
            gauge(
                "monarq_queue_dead_letters",
                "Dead letters that are kept",
                _summed((labels, queue.dead_letters) for queue, labels in kinds),
                ("queue", "kind"),
            ),
            gauge(
                "monarq_queue_partitions",
                "Partitions",
                _summed((labels, queue.partitions) for queue, labels in kinds),
                ("queue", "kind"),
            ),
            gauge(
                "monarq_queue_items",
                "Items of a work queue by state",
                _summed(
                    ((labels[0], state), count)
                    for queue, labels in kinds
                    if queue.kind is QueueKind.WORK
                    for state, count in queue.states.items()
                ),
                ("queue", "state"),
            ),
            gauge("monarq_queues", "Queues", [((), float(len(queues)))]),
            gauge("monarq_queues_labelled", "Queues with labels", [((), float(len(own)))]),
        ]
        for name, text in (
            ("pushed", "Messages or items that were pushed"),
            ("completed", "Acks that completed a message or item"),
            ("failed", "Deliveries that failed"),
            ("dead", "Messages or items that died"),
        ):
            values = _summed((labels, getattr(queue, name)) for queue, labels in kinds)
            families.append(counter(f"monarq_queue_{name}", text, values, ("queue", "kind")))
        return families

    def _of_groups(self, counters: GroupCounters) -> list[Family]:
        groups = [group for named in counters.flows.values() for group in named.values()]
        groups.sort(key=lambda group: (group.queue, group.group))
        # A queue with very many groups is no better than very many queues.
        chosen = {
            (group.queue, group.group)
            for group in sorted(groups, key=_place)[: self._limit]
            if self._label(group.queue) != OTHER
        }
        rows = [
            (
                (group.queue, group.group)
                if (group.queue, group.group) in chosen
                else (OTHER, OTHER),
                group,
            )
            for group in groups
        ]
        oldest: dict[Labels, float] = {}
        for labels, group in rows:
            seconds = group.lag_seconds(counters.at)
            oldest[labels] = max(oldest.get(labels, 0.0), seconds)
        return [
            gauge(
                "monarq_group_lag",
                "Messages that a group has not consumed",
                _summed((labels, group.lag) for labels, group in rows),
                ("queue", "group"),
            ),
            gauge(
                "monarq_group_oldest_unacked_seconds",
                "Age of the oldest message that a group has not consumed",
                oldest.items(),
                ("queue", "group"),
            ),
        ]

    def _choose(self, queues: list[QueueFlow]) -> None:
        names = {queue.queue for queue in queues}
        self._own &= names
        self._seen &= names
        new = [queue for queue in queues if queue.queue not in self._seen]
        new.sort(key=lambda queue: (-queue.pending, -queue.pushed, queue.queue))
        room = max(0, self._limit - len(self._own))
        self._own.update(queue.queue for queue in new[:room])
        self._seen = names

    def _label(self, queue: str) -> str:
        return queue if queue in self._own else OTHER


def _by_name(queues: QueueCounters) -> list[QueueFlow]:
    return sorted(queues.flows.values(), key=lambda flow: flow.queue)


async def _ages(store: Store, queues: list[QueueFlow]) -> list[tuple[str, float]]:
    """Return the age of the next item of the work queues that have one."""
    busy = [flow for flow in queues if flow.kind is QueueKind.WORK and flow.pending]
    busy.sort(key=lambda flow: -flow.pending)
    now = SystemClock().now()
    ages: list[tuple[str, float]] = []
    for flow in busy[:MOST_WORK_QUEUES]:
        with contextlib.suppress(NotFoundError):  # deleted meanwhile
            page = await store.list_items(flow.queue, order="next", limit=1)
            ages += [(flow.queue, max((now - item.created_at) / SECOND, 0.0)) for item in page.rows]
    return ages


def _largest(values: Iterable[tuple[str, float]]) -> list[tuple[Labels, float]]:
    found: dict[Labels, float] = {}
    for name, value in values:
        found[name,] = max(found.get((name,), 0.0), value)
    return list(found.items())


def _summed(values: Iterable[tuple[Labels, float]]) -> list[tuple[Labels, float]]:
    sums: dict[Labels, float] = {}
    for labels, value in values:
        sums[labels] = sums.get(labels, 0.0) + value
    return list(sums.items())


def _place(group: GroupFlow) -> tuple[int, str, str]:
    return group.created_at, group.queue, group.group


def _of(figures: Mapping[str, Any]) -> list[Family]:
    """The database's own figures, those of them that this kind of store has."""
    families = [
        gauge(f"monarq_{name}", text, [((), float(figures[figure]))])
        for figure, name, text in _FIGURES
        if isinstance(figures.get(figure), (int, float))
    ]
    tables = figures.get("tables", [])
    if tables:
        dead = [((table["table"],), float(table["deadTuples"])) for table in tables]
        size = [((table["table"],), float(table["totalBytes"])) for table in tables]
        families += [
            gauge("monarq_postgres_dead_tuples", "Dead rows of a table", dead, ("table",)),
            gauge("monarq_postgres_table_bytes", "Size of a table, all in", size, ("table",)),
        ]
    return families


_FIGURES = (
    ("databaseBytes", "store_bytes", "Size of the database"),
    ("connections", "postgres_connections", "Connections to the database, of anybody"),
    ("maxConnections", "postgres_connections_max", "Connections that the server allows"),
    (
        "oldestXminAge",
        "postgres_oldest_xmin_age",
        "Transactions since the oldest one that still holds back the removal of dead rows",
    ),
    (
        "oldestTransactionSeconds",
        "postgres_oldest_transaction_seconds",
        "Age of the oldest transaction that is open",
    ),
    ("deadlocks", "postgres_deadlocks", "Deadlocks since the statistics were reset"),
)
