"""Sums over the counters of queues."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from monarq.model import QueueCounts, QueueFlow, QueueKind
from monarq.model.pages import MOST_ROWS


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
    first: list[QueueFlow] = field(default_factory=list)
    """The first `MOST_ROWS` queues by name; only of sums over all queues."""
    namespaces: dict[str, Totals] = field(default_factory=dict)
    tasks: dict[str, Totals] = field(default_factory=dict)

    def add(self, queue: QueueFlow) -> None:
        self.queues += 1
        self.work_queues += queue.kind is QueueKind.WORK
        self.paused_queues += queue.paused
        self.partitions += queue.partitions
        self.stored += queue.stored
        self.pending += queue.pending
        self.pushed += queue.pushed
        self.completed += queue.completed
        self.failed += queue.failed
        self.dead += queue.dead
        self.dead_letters += queue.dead_letters
        for state, count in queue.states.items():
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


def add_up(flows: Iterable[QueueFlow]) -> Totals:
    totals = Totals()
    for flow in flows:
        totals.add(flow)
        for name, labels in ((flow.namespace, totals.namespaces), (flow.task, totals.tasks)):
            if name:
                labels.setdefault(name, Totals()).add(flow)
    totals.first = heapq.nsmallest(MOST_ROWS, flows, key=lambda flow: flow.queue)
    return totals
