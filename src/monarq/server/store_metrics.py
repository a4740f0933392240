"""What the store holds, for the metrics: depth and lag by queue and group.

Read at most every few seconds however often it is asked for, in pages, and never by two at once.
So that a store with very many queues does not make as many labels, only so many have their own:
the largest when first seen. The others are one, `other`. Who is what stays so while the queue
lives: a counter that moved between the two would look as if it had been reset.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from monarq.clock import SECOND, SystemClock
from monarq.errors import MonarqError, NotFoundError
from monarq.model import Group, Page, QueueInfo, QueueKind
from monarq.server.metric_families import Family, Labels, counter, gauge
from monarq.store.contract import Store

logger = logging.getLogger("monarq.metrics")

CACHE_SECONDS = 5.0
PAGE = 1000
MOST_PAGES = 50
PATIENCE_SECONDS = 2.0
MOST_WORK_QUEUES = 50
"""Of which the next item's age is asked for, those with most to do."""
OTHER = "other"
_AGE = "How long ago the store was asked for what is told of it"

T = TypeVar("T")


class StoreMetrics:
    def __init__(self, store: Callable[[], Store], queue_labels: int) -> None:
        """`store` may raise a `MonarqError` while there is none."""
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
        if time.monotonic() - self._read_at >= CACHE_SECONDS:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read())
            done, _ = await asyncio.wait({self._reading}, timeout=PATIENCE_SECONDS)
            for reading in done:
                reading.result()
        if not self._families:
            return []
        age = time.monotonic() - self._read_at
        return [*self._families, gauge("monarq_store_metrics_age_seconds", _AGE, [((), age)])]

    async def close(self) -> None:
        if self._reading is not None and not self._reading.done():
            self._reading.cancel()
            await asyncio.wait({self._reading})

    async def _read(self) -> None:
        try:
            store = self._store()
            queues = await _all(lambda after: store.list_queues(limit=PAGE, after=after))
            groups = await _all(lambda after: store.list_groups(limit=PAGE, after=after))
            ages = await _ages(store, queues)
            figures = await store.health_figures()
        except MonarqError as error:
            logger.debug("no metrics of the store: %s", error)
            self._families = []
        else:
            self._families = [*self._of_queues(queues), *self._of_groups(groups), *_of(figures)]
            self._families.append(
                gauge(
                    "monarq_queue_next_item_age_seconds",
                    "Age of the item that is next in a work queue",
                    _largest((self._label(queue), age) for queue, age in ages),
                    ("queue",),
                )
            )
        finally:
            self._read_at = time.monotonic()

    def _of_queues(self, queues: list[QueueInfo]) -> list[Family]:
        self._choose(queues)
        kinds = [(queue, (self._label(queue.name), queue.kind.value)) for queue in queues]
        own = [labels for _, labels in kinds if labels[0] != OTHER]
        families = [
            gauge(
                "monarq_queue_pending",
                "Messages or items that are not done, for the group furthest behind",
                _summed((labels, queue.counts.pending) for queue, labels in kinds),
                ("queue", "kind"),
            ),
            gauge(
                "monarq_queue_stored",
                "Messages or items that are kept",
                _summed((labels, queue.counts.stored) for queue, labels in kinds),
                ("queue", "kind"),
            ),
            gauge(
                "monarq_queue_dead_letters",
                "Dead letters that are kept",
                _summed((labels, queue.counts.dead_letters) for queue, labels in kinds),
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
                    for state, count in queue.counts.states.items()
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
            values = _summed((labels, getattr(queue.counts, name)) for queue, labels in kinds)
            families.append(counter(f"monarq_queue_{name}", text, values, ("queue", "kind")))
        return families

    def _of_groups(self, groups: list[Group]) -> list[Family]:
        # A queue with very many groups is no better than very many queues.
        chosen = {
            (group.queue, group.name)
            for group in sorted(groups, key=_place)[: self._limit]
            if self._label(group.queue) != OTHER
        }
        rows = [
            (
                (group.queue, group.name)
                if (group.queue, group.name) in chosen
                else (OTHER, OTHER),
                group,
            )
            for group in groups
        ]
        oldest: dict[Labels, float] = {}
        for labels, group in rows:
            oldest[labels] = max(oldest.get(labels, 0.0), group.lag_seconds)
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

    def _choose(self, queues: list[QueueInfo]) -> None:
        names = {queue.name for queue in queues}
        self._own &= names
        self._seen &= names
        new = [queue for queue in queues if queue.name not in self._seen]
        new.sort(key=lambda queue: (-queue.counts.pending, -queue.counts.pushed, queue.name))
        room = max(0, self._limit - len(self._own))
        self._own.update(queue.name for queue in new[:room])
        self._seen = names

    def _label(self, queue: str) -> str:
        return queue if queue in self._own else OTHER


async def _all(page: Callable[[str | None], Awaitable[Page[T]]]) -> list[T]:
    """All rows, or as many as the most pages hold."""
    rows: list[T] = []
    after = None
    for _ in range(MOST_PAGES):
        found = await page(after)
        rows += found.rows
        after = found.next
        if after is None:
            break
    return rows


async def _ages(store: Store, queues: list[QueueInfo]) -> list[tuple[str, float]]:
    """How old the next item is of the work queues that have one."""
    busy = [queue for queue in queues if queue.kind is QueueKind.WORK and queue.counts.pending]
    busy.sort(key=lambda queue: -queue.counts.pending)
    now = SystemClock().now()
    ages: list[tuple[str, float]] = []
    for queue in busy[:MOST_WORK_QUEUES]:
        with contextlib.suppress(NotFoundError):  # deleted meanwhile
            page = await store.list_items(queue.name, order="next", limit=1)
            ages += [(queue.name, max((now - item.created_at) / SECOND, 0.0)) for item in page.rows]
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


def _place(group: Group) -> tuple[int, str, str]:
    return group.created_at, group.queue, group.name


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
