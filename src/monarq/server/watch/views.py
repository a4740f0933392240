"""Views: the counters of all queues and groups at one moment, with rates since an earlier one."""

from __future__ import annotations

from dataclasses import dataclass, field

from monarq.clock import SECOND
from monarq.model import GroupFlow, QueueFlow
from monarq.server.snapshot import EMPTY, Snapshot
from monarq.times import iso
from monarq.wire.watching import GroupLine, GroupState, QueueLine

BEHIND_SECONDS = 60.0
_OLDER = 10 * SECOND


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
        """Between the counters of the queues; those of the groups may be read apart."""
        return _seconds(self.now.at, self.before.at)

    # --- queues ------------------------------------------------------------------------------

    def slowest(self, queue: str) -> GroupFlow | None:
        groups = self.now.groups.get(queue)
        if not groups:
            return None
        found = max(groups.values(), key=lambda group: (-(group.oldest_at or 2**62), group.lag))
        return found if found.lag else None

    def lag_seconds(self, group: GroupFlow | None) -> float:
        return 0.0 if group is None else round(group.lag_seconds(self.now.groups_at), 1)

    def queue_rates(self, flow: QueueFlow) -> tuple[float, float, float, float]:
        """In, out, failed, dead."""
        before = self.before.queues.get(flow.queue)
        if before is None or before.queue_id != flow.queue_id:
            return 0.0, 0.0, 0.0, 0.0
        seconds = self.seconds
        return (
            _rate(flow.pushed, before.pushed, seconds),
            _rate(flow.completed, before.completed, seconds),
            _rate(flow.failed, before.failed, seconds),
            _rate(flow.dead, before.dead, seconds),
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
            pending=flow.pending,
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
            states=flow.states,
            runs_commands=flow.runs_commands,
        )

    # --- groups ------------------------------------------------------------------------------

    def group_rates(self, flow: GroupFlow) -> tuple[float, float]:
        """Completed, failed."""
        before = self.before.groups.get(flow.queue, {}).get(flow.group)
        if before is None or before.group_id != flow.group_id:
            return 0.0, 0.0
        seconds = _seconds(self.now.groups_at, self.before.groups_at)
        return (
            _rate(flow.completed, before.completed, seconds),
            _rate(flow.failed, before.failed, seconds),
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


def _seconds(now: int, before: int) -> float:
    return max((now - before) / SECOND, 0.001) if before else 0.0


def _rate(now: int, before: int, seconds: float) -> float:
    # A queue that was made anew counts from the beginning.
    return round(max(0, now - before) / seconds, 3) if seconds else 0.0
