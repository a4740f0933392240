"""The counters of all queues and groups at one moment, and what two such moments say.

Read in a few large pages; in memory a struct a queue and a group. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from monarq.clock import SECOND
from monarq.model import GroupFlow, Page, QueueFlow, QueueKind
from monarq.store.contract import Store
from monarq.store.contract.watching import MOST_FLOWS
from monarq.times import iso
from monarq.wire.watching import GroupLine, GroupState, QueueLine

BEHIND_SECONDS = 60.0
_OLDER = 10 * SECOND

T = TypeVar("T")


@dataclass(slots=True)
class Snapshot:
    at: int
    queues: dict[str, QueueFlow]
    groups: dict[str, dict[str, GroupFlow]]
    """By queue and name."""

    def group_count(self) -> int:
        return sum(map(len, self.groups.values()))


EMPTY = Snapshot(0, {}, {})


async def read_snapshot(store: Store, now: Callable[[], int]) -> Snapshot:
    at = now()
    queues = await _all(lambda after: store.queue_flows(limit=MOST_FLOWS, after=after))
    groups: dict[str, dict[str, GroupFlow]] = {}
    for flow in await _all(lambda after: store.group_flows(limit=MOST_FLOWS, after=after)):
        groups.setdefault(flow.queue, {})[flow.group] = flow
    return Snapshot(at, {flow.queue: flow for flow in queues}, groups)


async def _all(fetch: Callable[[str | None], Awaitable[Page[T]]]) -> list[T]:
    page = await fetch(None)
    rows = page.rows
    while page.next is not None:
        page = await fetch(page.next)
        rows += page.rows
    return rows


@dataclass(slots=True)
class View:
    """A moment, with an earlier one that rates are told by."""

    now: Snapshot
    before: Snapshot = field(default_factory=lambda: EMPTY)
    version: int = 0
    """Counts the moments that were looked at."""
    changed_queues: set[str] = field(default_factory=set)
    """Since the version before; also those that are gone."""
    changed_groups: set[tuple[str, str]] = field(default_factory=set)
    stuck_groups: frozenset[tuple[str, str]] = frozenset()
    """Those with a message that fails again and again, by queue and group."""

    @property
    def seconds(self) -> float:
        return max((self.now.at - self.before.at) / SECOND, 0.001) if self.before.at else 0.0

    def rate(self, now: int, before: int | None) -> float:
        if before is None or not self.before.at:
            return 0.0
        # A queue that was made anew counts from the beginning.
        return round(max(0, now - before) / self.seconds, 3)

    # --- queues ------------------------------------------------------------------------------

    def pending(self, flow: QueueFlow) -> int:
        if flow.kind is QueueKind.WORK:
            return flow.scheduled + flow.ready + flow.leased
        groups = self.now.groups.get(flow.queue)
        return max((group.lag for group in groups.values()), default=0) if groups else flow.stored

    def slowest(self, queue: str) -> GroupFlow | None:
        groups = self.now.groups.get(queue)
        if not groups:
            return None
        found = max(groups.values(), key=lambda group: (-(group.oldest_at or 2**62), group.lag))
        return found if found.lag else None

    def lag_seconds(self, group: GroupFlow | None) -> float:
        if group is None or group.oldest_at is None or not group.lag:
            return 0.0
        return round(max(0, self.now.at - group.oldest_at) / SECOND, 1)

    def queue_rates(self, flow: QueueFlow) -> tuple[float, float, float, float]:
        """In, out, failed, dead."""
        before = self.before.queues.get(flow.queue)
        if before is None or before.queue_id != flow.queue_id:
            return 0.0, 0.0, 0.0, 0.0
        return (
            self.rate(flow.pushed, before.pushed),
            self.rate(flow.completed, before.completed),
            self.rate(flow.failed, before.failed),
            self.rate(flow.dead, before.dead),
        )

    def queue_line(self, flow: QueueFlow) -> QueueLine:
        rate_in, rate_out, failing, _ = self.queue_rates(flow)
        slowest = self.slowest(flow.queue)
        return QueueLine(
            name=flow.queue,
            kind=flow.kind,
            namespace=flow.namespace,
            task=flow.task,
            paused=flow.paused,
            partitions=flow.partitions,
            groups=len(self.now.groups.get(flow.queue, ())),
            stored=flow.stored,
            pending=self.pending(flow),
            dead_letters=flow.dead_letters,
            pushed=flow.pushed,
            completed=flow.completed,
            failed=flow.failed,
            dead=flow.dead,
            in_=rate_in,
            out=rate_out,
            failing=failing,
            lag_seconds=self.lag_seconds(slowest),
            slowest_group=slowest.group if slowest else None,
            max_size=flow.max_size,
            states=_states(flow),
            runs_commands=flow.runs_commands,
        )

    # --- groups ------------------------------------------------------------------------------

    def group_rates(self, flow: GroupFlow) -> tuple[float, float]:
        """Completed, failed."""
        before = self.before.groups.get(flow.queue, {}).get(flow.group)
        if before is None or before.group_id != flow.group_id:
            return 0.0, 0.0
        return (
            self.rate(flow.completed, before.completed),
            self.rate(flow.failed, before.failed),
        )

    def group_line(self, flow: GroupFlow) -> GroupLine:
        out, failing = self.group_rates(flow)
        seconds = self.lag_seconds(flow)
        state: GroupState = "caught up" if flow.completed else "idle"
        if flow.lag:
            state = "working" if out or seconds <= BEHIND_SECONDS else "stuck"
            if out and seconds > BEHIND_SECONDS:
                state = "behind"
            if (flow.queue, flow.group) in self.stuck_groups:
                state = "stuck"
        return GroupLine(
            name=flow.group,
            queue=flow.queue,
            lag=flow.lag,
            lag_seconds=seconds,
            out=out,
            failing=failing,
            completed=flow.completed,
            failed=flow.failed,
            dead=flow.dead,
            state=state,
            created_at=iso(flow.created_at),
        )


def next_view(last: View, now: Snapshot, window: int) -> View:
    """The view of a new moment. Rates are told by one at least `window` ago, if there is one."""
    before = last.before
    is_over = last.now.at - before.at >= window and now.at - last.now.at >= SECOND
    if not before.at or is_over:
        before = last.now
    old = last.now
    # Who is behind is so for longer every moment; that is told now and then.
    is_later = now.at // _OLDER != old.at // _OLDER
    changed = {name for name, flow in now.queues.items() if old.queues.get(name) != flow}
    changed.update(name for name in old.queues if name not in now.queues)
    groups = {
        (queue, name)
        for queue, named in now.groups.items()
        for name, flow in named.items()
        if (flow.lag and is_later) or old.groups.get(queue, {}).get(name) != flow
    }
    groups.update(
        (queue, name)
        for queue, named in old.groups.items()
        for name in named
        if name not in now.groups.get(queue, {})
    )
    changed.update(queue for queue, _ in groups)
    if before is not last.before:
        # Rates fall to nothing with nothing else changed.
        changed.update(_moving(last))
    return View(now, before, last.version + 1, changed, groups)


def _moving(view: View) -> set[str]:
    return {name for name, flow in view.now.queues.items() if any(view.queue_rates(flow))}


def _states(flow: QueueFlow) -> dict[str, int]:
    if flow.kind is not QueueKind.WORK:
        return {}
    return {
        "scheduled": flow.scheduled,
        "ready": flow.ready,
        "leased": flow.leased,
        "done": flow.done,
        "dead": flow.dead_items,
        "cancelled": flow.cancelled,
    }
