"""Sums over all queues, from the counters that the store keeps: a page of queues a call, in
memory only the sums. Nothing is counted, whatever the backlog."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from monarq.model import QueueCounts, QueueInfo, QueueKind
from monarq.model.pages import MOST_ROWS
from monarq.store.contract import Store

SLOW_SECONDS = 0.05
LEAST_KEPT_SECONDS = 1.0
KEPT_PER_READING = 4.0
"""Readings take at most a fifth of the time."""
MOST_KEPT_SECONDS = 10.0


@dataclass(slots=True)
class Totals:
    queues: int = 0
    work_queues: int = 0
    paused_queues: int = 0
    partitions: int = 0
    stored: int = 0
    pending: int = 0
    pushed: int = 0
    completed: int = 0
    failed: int = 0
    dead: int = 0
    dead_letters: int = 0
    states: dict[str, int] = field(default_factory=dict)
    first: list[QueueInfo] = field(default_factory=list)
    """The first `MOST_ROWS` queues by name; only of sums over all queues."""
    namespaces: dict[str, Totals] = field(default_factory=dict)
    tasks: dict[str, Totals] = field(default_factory=dict)

    def add(self, queue: QueueInfo) -> None:
        counts = queue.counts
        self.queues += 1
        self.work_queues += queue.kind is QueueKind.WORK
        self.paused_queues += queue.paused
        self.partitions += queue.partitions
        self.stored += counts.stored
        self.pending += counts.pending
        self.pushed += counts.pushed
        self.completed += counts.completed
        self.failed += counts.failed
        self.dead += counts.dead
        self.dead_letters += counts.dead_letters
        for state, count in counts.states.items():
            self.states[state] = self.states.get(state, 0) + count

    def counts(self) -> QueueCounts:
        return QueueCounts(
            stored=self.stored,
            pending=self.pending,
            pushed=self.pushed,
            completed=self.completed,
            failed=self.failed,
            dead=self.dead,
            dead_letters=self.dead_letters,
            states=self.states,
        )


class TotalsReader:
    """Reads sums over queues for all callers, one reading at a time.

    Sums over few queues are always read anew. A reading that takes longer than `SLOW_SECONDS`,
    as of ten thousand queues, is kept for a while, so that callers who ask all the time keep
    neither the store nor the loop busy.
    """

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._reading = asyncio.Lock()
        self._kept: dict[tuple[str | None, str | None], tuple[float, Totals]] = {}
        """With the loop's time up to which they are good."""

    async def read(self, *, namespace: str | None = None, task: str | None = None) -> Totals:
        """Of all queues, or of those with these labels; by label too."""
        now = asyncio.get_running_loop().time
        labels = namespace, task
        async with self._reading:
            begin = now()
            self._kept = {key: one for key, one in self._kept.items() if one[0] > begin}
            if labels in self._kept:
                return self._kept[labels][1]
            totals = await _queue_totals(self._store(), namespace=namespace, task=task)
            took = now() - begin
            if took > SLOW_SECONDS:
                keep = min(max(LEAST_KEPT_SECONDS, took * KEPT_PER_READING), MOST_KEPT_SECONDS)
                self._kept[labels] = now() + keep, totals
            return totals


async def _queue_totals(
    store: Store, *, namespace: str | None = None, task: str | None = None
) -> Totals:
    totals = Totals()
    after = None
    while True:
        page = await store.list_queues(namespace=namespace, task=task, limit=MOST_ROWS, after=after)
        for queue in page.rows:
            totals.add(queue)
            for name, labels in ((queue.namespace, totals.namespaces), (queue.task, totals.tasks)):
                if name:
                    labels.setdefault(name, Totals()).add(queue)
        if after is None:
            totals.first = page.rows
        after = page.next
        if after is None:
            return totals
