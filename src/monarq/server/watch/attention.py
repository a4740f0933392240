"""What somebody should look at, in plain words. Looks at figures that are there already; asks
the store for nothing."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Literal

from monarq.health import BufferHealth, Health
from monarq.model import GroupFlow, QueueFlow, QueueKind, Standing
from monarq.server.watch.views import BEHIND_SECONDS, View
from monarq.server.watch.wording import duration, number, plural
from monarq.times import iso
from monarq.wire.dashboard import Attention, WorkerLine

MOST = 50
_FAR_BEHIND_SECONDS = 300.0
_UNCONSUMED = 100
_OLD_TRANSACTION_SECONDS = 300.0
_WAITING_JOB_SECONDS = 60.0
_RISING = 3
"""Deaths in the last seconds that are more than chance."""
_ORDER = {"critical": 0, "warning": 1, "notice": 2}


@dataclass(slots=True)
class Findings:
    """What was asked of the store besides the counters."""

    failing: dict[tuple[str, str], Standing] = field(default_factory=dict)
    """The worst partition of groups that fail, by queue and group."""
    waiting_jobs: dict[str, float] = field(default_factory=dict)
    """How long the next item of work queues has waited, in seconds."""
    workers: list[WorkerLine] = field(default_factory=list)
    oldest_transaction_seconds: float = 0.0
    failed_runs: list[tuple[str, str, str]] = field(default_factory=list)
    """Runs of the pipeline whose latest one failed: pipeline, error, when."""


def attention(view: View, health: Health, findings: Findings) -> list[Attention]:
    """The worst first; what is about more messages before what is about fewer."""
    found = chain(
        _of_system(health, findings),
        _of_buffer(health.buffer),
        _of_groups(view, findings),
        _of_queues(view, findings),
        _of_workers(findings),
        _of_pipeline(findings),
    )
    worst = heapq.nsmallest(MOST, found, key=lambda one: one[:3])
    return [make() for *_, make in worst]


Severity = Literal["critical", "warning", "notice"]
Weighed = tuple[int, float, str, Callable[[], Attention]]
"""What it is sorted by, and how it is made: very many are weighed, and few of them told."""


def _weighed(
    severity: Severity, weight: float, name: str, make: Callable[..., Attention], *about: object
) -> Weighed:
    return _ORDER[severity], -weight, name, partial(make, name, severity, *about)


def _made(weight: float, one: Attention) -> Weighed:
    return _ORDER[one.severity], -weight, one.id, lambda: one


def _of_system(health: Health, findings: Findings) -> Iterator[Weighed]:
    if not health.store_ok:
        yield _made(
            1e12,
            Attention(
                id="store_down",
                severity="critical",
                kind="store_down",
                text=f"The store cannot be reached: {health.store_error or 'no answer'}.",
                hint="Pushes are kept in files and stored when it is back; everything else waits.",
                page="system",
            ),
        )
    if health.maintenance_push or health.maintenance_pop:
        what = "Pushes go to files" if health.maintenance_push else "Pops find nothing"
        if health.maintenance_push and health.maintenance_pop:
            what = "Pushes go to files, and pops find nothing"
        yield _made(
            1e6,
            Attention(
                id="maintenance",
                severity="warning",
                kind="maintenance",
                text=f"Maintenance is on. {what}.",
                hint="Switch it off when the maintenance is done.",
                page="system",
            ),
        )
    seconds = findings.oldest_transaction_seconds
    if seconds > _OLD_TRANSACTION_SECONDS:
        yield _made(
            seconds,
            Attention(
                id="old_transaction",
                severity="warning",
                kind="old_transaction",
                text=f"A transaction in the database has been open for {duration(seconds)}.",
                hint="It keeps dead rows from being removed, and queues grow slower with time.",
                page="system",
            ),
        )


def _of_buffer(buffer: BufferHealth | None) -> Iterator[Weighed]:
    if buffer is None:
        return
    if buffer.set_aside:
        yield _made(
            1e11,
            Attention(
                id="buffer_set_aside",
                severity="critical",
                kind="buffer_set_aside",
                text=f"Pushes in {plural(len(buffer.set_aside), 'file')} could not be stored, and "
                "were set aside.",
                hint="Look at them with `monarq buffer`.",
                page="system",
            ),
        )
    if buffer.records:
        yield _made(
            float(buffer.records),
            Attention(
                id="buffer_filling",
                severity="warning",
                kind="buffer_filling",
                text=f"{plural(buffer.records, 'push', 'pushes')} wait in files to be stored.",
                hint="They are stored, in order, when the store takes them again.",
                page="system",
                since=iso(buffer.oldest) if buffer.oldest else None,
            ),
        )


def _of_groups(view: View, findings: Findings) -> Iterator[Weighed]:
    for named in view.now.groups.values():
        for group in named.values():
            poison = findings.failing.get((group.queue, group.group))
            if poison is not None and group.lag:
                name = f"group_stuck:{group.queue}:{group.group}"
                yield _weighed("critical", group.lag, name, _stuck, group, poison)
            elif group.lag and (seconds := view.lag_seconds(group)) >= BEHIND_SECONDS:
                name = f"group_lagging:{group.queue}:{group.group}"
                is_left = seconds >= _FAR_BEHIND_SECONDS and not view.group_rates(group)[0]
                severity: Severity = "critical" if is_left else "warning"
                yield _weighed(severity, group.lag, name, _lagging, view, group)


def _stuck(name: str, severity: Severity, group: GroupFlow, poison: Standing) -> Attention:
    behind = poison.lag - 1
    waits = f", and {plural(behind, 'message')} wait behind it" if behind > 1 else ""
    if behind == 1:
        waits = ", and 1 message waits behind it"
    why = f" ({poison.error.splitlines()[0][:120]})" if poison.error else ""
    return Attention(
        id=name,
        severity=severity,
        kind="group_stuck",
        text=f"Group `{group.group}` is stuck on `{group.queue}`: message "
        f"{poison.position + 1} of partition `{poison.partition}` has failed "
        f"{plural(poison.attempts, 'time')}{why}{waits}.",
        hint="Look at the message; then skip it to the dead letters, or retry it when the cause "
        "is mended.",
        page="group",
        since=iso(poison.oldest_at) if poison.oldest_at else None,
        queue=group.queue,
        group=group.group,
        partition=poison.partition,
        partition_id=str(poison.partition_id),
        seq=poison.position + 1,
    )


def _lagging(name: str, severity: Severity, view: View, group: GroupFlow) -> Attention:
    seconds = view.lag_seconds(group)
    out, _ = view.group_rates(group)
    queue = view.now.queues.get(group.queue)
    rate_in = view.queue_rates(queue)[0] if queue else 0.0
    hint = "Nothing was completed for it lately: are its consumers running?"
    if out > rate_in:
        hint = f"It is catching up: {number(out)} a second go out, {number(rate_in)} come in."
    elif out:
        hint = f"{number(out)} a second go out and {number(rate_in)} come in: add consumers."
    if queue is not None and queue.paused:
        hint = "The queue is paused."
    return Attention(
        id=name,
        severity=severity,
        kind="group_lagging",
        text=f"Group `{group.group}` is {plural(group.lag, 'message')} and {duration(seconds)} "
        f"behind on `{group.queue}`.",
        hint=hint,
        page="group",
        since=iso(group.oldest_at) if group.oldest_at else None,
        queue=group.queue,
        group=group.group,
    )


def _of_queues(view: View, findings: Findings) -> Iterator[Weighed]:
    for flow in view.now.queues.values():
        if flow.dead_letters:
            rate = _dying(view, flow)
            yield _weighed(
                "critical" if rate else "warning",
                flow.dead_letters,
                f"dead_letters:{flow.queue}",
                _dead_letters,
                flow,
                rate,
            )
        pending = flow.pending
        if not pending:
            continue
        if flow.max_size and pending >= 0.9 * flow.max_size:
            is_full = pending >= flow.max_size
            name = f"queue_full:{flow.queue}"
            yield _weighed(
                "critical" if is_full else "warning", pending, name, _full, flow, pending
            )
        if flow.paused:
            yield _weighed("notice", pending, f"queue_paused:{flow.queue}", _paused, flow, pending)
        elif flow.kind is QueueKind.WORK:
            yield from _of_work(view, flow, findings)
        elif flow.queue not in view.now.groups and pending >= _UNCONSUMED:
            name = f"nobody_consumes:{flow.queue}"
            yield _weighed("notice", pending, name, _unconsumed, flow, pending)


def _dying(view: View, flow: QueueFlow) -> float:
    """How many a second, if that is more than chance."""
    rate = view.queue_rates(flow)[3]
    return rate if rate * view.seconds >= _RISING else 0.0


def _dead_letters(name: str, severity: Severity, flow: QueueFlow, rate: float) -> Attention:
    rising = f", and {number(rate * 60)} more die a minute" if rate else ""
    return Attention(
        id=name,
        severity=severity,
        kind="dead_rising" if rate else "dead_letters",
        text=f"`{flow.queue}` has {plural(flow.dead_letters, 'dead letter')}{rising}.",
        hint="See what they died of; redrive them when it is mended.",
        page="deadLetters",
        queue=flow.queue,
    )


def _full(name: str, severity: Severity, flow: QueueFlow, pending: int) -> Attention:
    is_full = pending >= flow.max_size
    return Attention(
        id=name,
        severity=severity,
        kind="queue_full",
        text=f"`{flow.queue}` is {'full' if is_full else 'nearly full'}: {number(pending)} of "
        f"{number(flow.max_size)} messages.",
        hint="Pushes to it are refused while it is full.",
        page="queue",
        queue=flow.queue,
    )


def _paused(name: str, severity: Severity, flow: QueueFlow, pending: int) -> Attention:
    return Attention(
        id=name,
        severity=severity,
        kind="queue_paused",
        text=f"`{flow.queue}` is paused with {number(pending)} pending.",
        hint="Its pops find nothing until it is resumed.",
        page="queue",
        queue=flow.queue,
    )


def _unconsumed(name: str, severity: Severity, flow: QueueFlow, pending: int) -> Attention:
    return Attention(
        id=name,
        severity=severity,
        kind="nobody_consumes",
        text=f"Nobody consumes `{flow.queue}`, which keeps {plural(pending, 'message')}.",
        hint="A group is made by its first pop.",
        page="queue",
        queue=flow.queue,
    )


def _of_work(view: View, flow: QueueFlow, findings: Findings) -> Iterator[Weighed]:
    _, out, failing, _ = view.queue_rates(flow)
    if failing > out and failing * view.seconds >= 3:
        name = f"jobs_failing:{flow.queue}"
        yield _weighed("warning", failing, name, _jobs_failing, flow, failing, out)
    waited = findings.waiting_jobs.get(flow.queue, 0.0)
    if waited < _WAITING_JOB_SECONDS or flow.leased or out:
        return
    served = any(
        line.state == "running" and (not line.queues or flow.queue in line.queues)
        for line in findings.workers
    )
    if not served:
        name = f"no_worker:{flow.queue}"
        yield _weighed("warning", flow.ready, name, _no_worker, flow, waited)


def _jobs_failing(
    name: str, severity: Severity, flow: QueueFlow, failing: float, out: float
) -> Attention:
    return Attention(
        id=name,
        severity=severity,
        kind="jobs_failing",
        text=f"More fails than is done on `{flow.queue}`: {number(failing * 60)} failures "
        f"against {number(out * 60)} a minute.",
        hint="Look at the errors of its latest attempts.",
        page="jobs",
        queue=flow.queue,
    )


def _no_worker(name: str, severity: Severity, flow: QueueFlow, waited: float) -> Attention:
    return Attention(
        id=name,
        severity=severity,
        kind="no_worker",
        text=f"Nobody works on `{flow.queue}`: {plural(flow.ready, 'item')} "
        f"{'has' if flow.ready == 1 else 'have'} waited for up to {duration(waited)}.",
        hint="Start a worker for it: `monarq worker start`.",
        page="jobs",
        queue=flow.queue,
    )


def _of_workers(findings: Findings) -> Iterator[Weighed]:
    for line in findings.workers:
        if line.state != "lost":
            continue
        jobs = len(line.running)
        had = f" while it ran {plural(jobs, 'job')}" if jobs else ""
        yield _made(
            float(jobs),
            Attention(
                id=f"worker_lost:{line.id}",
                severity="warning",
                kind="worker_lost",
                text=f"Worker `{line.id}` has said nothing for "
                f"{duration(line.silent_seconds)}{had}.",
                hint="Its jobs are given to others when their leases run out.",
                page="workers",
                since=line.heartbeat_at or None,
            ),
        )


def _of_pipeline(findings: Findings) -> Iterator[Weighed]:
    for pipeline, error, when in findings.failed_runs:
        why = f": {error.splitlines()[0][:160]}" if error else ""
        yield _made(
            0.0,
            Attention(
                id=f"pipeline_failed:{pipeline}",
                severity="warning",
                kind="pipeline_failed",
                text=f"The last run of the pipeline `{pipeline}` failed{why}.",
                hint="See its runs on the page of the pipeline.",
                page="pipeline",
                since=when or None,
            ),
        )
