"""What somebody should look at, in plain words. Looks at figures that are there already; asks
the store for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from monarq.health import Health
from monarq.model import GroupFlow, QueueFlow, QueueKind, Standing
from monarq.server.watch.snapshot import BEHIND_SECONDS, View
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
    found = [
        *_of_system(view, health, findings),
        *_of_groups(view, findings),
        *_of_queues(view, findings),
        *_of_workers(findings),
        *_of_pipeline(findings),
    ]
    found.sort(key=lambda pair: (_ORDER[pair[1].severity], -pair[0], pair[1].id))
    return [one for _, one in found[:MOST]]


Weighed = tuple[float, Attention]


def _of_system(view: View, health: Health, findings: Findings) -> Iterator[Weighed]:
    if not health.store_ok:
        yield (
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
    buffer = health.buffer
    if buffer is not None and buffer.set_aside:
        yield (
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
    if buffer is not None and buffer.records:
        yield (
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
    if health.maintenance_push or health.maintenance_pop:
        both = health.maintenance_push and health.maintenance_pop
        what = (
            "Pushes go to files, and pops find nothing"
            if both
            else "Pushes go to files"
            if health.maintenance_push
            else "Pops find nothing"
        )
        yield (
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
        yield (
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


def _of_groups(view: View, findings: Findings) -> Iterator[Weighed]:
    for named in view.now.groups.values():
        for group in named.values():
            poison = findings.failing.get((group.queue, group.group))
            if poison is not None and group.lag:
                yield float(group.lag), _stuck(view, group, poison)
            elif group.lag and view.lag_seconds(group) >= BEHIND_SECONDS:
                yield float(group.lag), _lagging(view, group)


def _stuck(view: View, group: GroupFlow, poison: Standing) -> Attention:
    behind = poison.lag - 1
    waits = f", and {plural(behind, 'message')} wait behind it" if behind > 1 else ""
    if behind == 1:
        waits = ", and 1 message waits behind it"
    why = f" ({poison.error.splitlines()[0][:120]})" if poison.error else ""
    return Attention(
        id=f"group_stuck:{group.queue}:{group.group}",
        severity="critical",
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


def _lagging(view: View, group: GroupFlow) -> Attention:
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
        id=f"group_lagging:{group.queue}:{group.group}",
        severity="critical" if seconds >= _FAR_BEHIND_SECONDS and not out else "warning",
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
            yield float(flow.dead_letters), _dead_letters(view, flow)
        pending = view.pending(flow)
        if not pending:
            continue
        if flow.max_size and pending >= 0.9 * flow.max_size:
            yield float(pending), _full(flow, pending)
        if flow.paused:
            yield float(pending), _paused(flow, pending)
        elif flow.kind is QueueKind.WORK:
            yield from _of_work(view, flow, findings)
        elif flow.queue not in view.now.groups and pending >= _UNCONSUMED:
            yield float(pending), _unconsumed(flow, pending)


def _dead_letters(view: View, flow: QueueFlow) -> Attention:
    rate = view.queue_rates(flow)[3]
    if rate * view.seconds < _RISING:
        rate = 0.0
    rising = f", and {number(rate * 60)} more die a minute" if rate else ""
    return Attention(
        id=f"dead_letters:{flow.queue}",
        severity="critical" if rate else "warning",
        kind="dead_rising" if rate else "dead_letters",
        text=f"`{flow.queue}` has {plural(flow.dead_letters, 'dead letter')}{rising}.",
        hint="See what they died of; redrive them when it is mended.",
        page="deadLetters",
        queue=flow.queue,
    )


def _full(flow: QueueFlow, pending: int) -> Attention:
    is_full = pending >= flow.max_size
    return Attention(
        id=f"queue_full:{flow.queue}",
        severity="critical" if is_full else "warning",
        kind="queue_full",
        text=f"`{flow.queue}` is {'full' if is_full else 'nearly full'}: {number(pending)} of "
        f"{number(flow.max_size)} messages.",
        hint="Pushes to it are refused while it is full.",
        page="queue",
        queue=flow.queue,
    )


def _paused(flow: QueueFlow, pending: int) -> Attention:
    return Attention(
        id=f"queue_paused:{flow.queue}",
        severity="notice",
        kind="queue_paused",
        text=f"`{flow.queue}` is paused with {number(pending)} pending.",
        hint="Its pops find nothing until it is resumed.",
        page="queue",
        queue=flow.queue,
    )


def _unconsumed(flow: QueueFlow, pending: int) -> Attention:
    return Attention(
        id=f"nobody_consumes:{flow.queue}",
        severity="notice",
        kind="nobody_consumes",
        text=f"Nobody consumes `{flow.queue}`, which keeps {plural(pending, 'message')}.",
        hint="A group is made by its first pop.",
        page="queue",
        queue=flow.queue,
    )


def _of_work(view: View, flow: QueueFlow, findings: Findings) -> Iterator[Weighed]:
    _, out, failing, _ = view.queue_rates(flow)
    if failing > out and failing * view.seconds >= 3:
        yield (
            failing,
            Attention(
                id=f"jobs_failing:{flow.queue}",
                severity="warning",
                kind="jobs_failing",
                text=f"More fails than is done on `{flow.queue}`: {number(failing * 60)} failures "
                f"against {number(out * 60)} a minute.",
                hint="Look at the errors of its latest attempts.",
                page="jobs",
                queue=flow.queue,
            ),
        )
    waited = findings.waiting_jobs.get(flow.queue, 0.0)
    if waited < _WAITING_JOB_SECONDS or flow.leased or out:
        return
    served = any(
        line.state == "running" and (not line.queues or flow.queue in line.queues)
        for line in findings.workers
    )
    if not served:
        yield (
            float(flow.ready),
            Attention(
                id=f"no_worker:{flow.queue}",
                severity="warning",
                kind="no_worker",
                text=f"Nobody works on `{flow.queue}`: {plural(flow.ready, 'item')} "
                f"{'has' if flow.ready == 1 else 'have'} waited for up to {duration(waited)}.",
                hint="Start a worker for it: `monarq worker start`.",
                page="jobs",
                queue=flow.queue,
            ),
        )


def _of_workers(findings: Findings) -> Iterator[Weighed]:
    for line in findings.workers:
        if line.state != "lost":
            continue
        jobs = len(line.running)
        had = f" while it ran {plural(jobs, 'job')}" if jobs else ""
        yield (
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
        yield (
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
