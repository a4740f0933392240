"""The tables of the report: queues, groups, errors, partitions, jobs, and what has changed."""

from __future__ import annotations

from collections.abc import Sequence

from monarq.spark.pipelines.analyse import wording
from monarq.spark.pipelines.analyse.comparing import PRESENCE
from monarq.spark.pipelines.analyse.figures import (
    Analysis,
    Change,
    GroupFigures,
    QueueFigures,
    Spread,
)
from monarq.spark.pipelines.analyse.report.charts import group_name
from monarq.spark.pipelines.analyse.report.markup import Cell, code, number, table, text, words
from monarq.spark.pipelines.analyse.shifts import both_in_words

MOST_ROWS = 100
_MOST_OF_QUEUE = 8


def queues(analysis: Analysis) -> str:
    rows = analysis.queues[:MOST_ROWS]
    most = max((queue.messages for queue in rows), default=0) or 1
    slowest = max((queue.waiting.p99 for queue in rows if queue.waiting), default=0.0) or 1.0
    return table(
        f"Queues, the busiest first{_cut(analysis.queues)}",
        ("queue", "#messages", "#rate", "#data", "#failed", "#dead letters", "#p50 waiting",
         "#p99 waiting", "#p99 processing"),
        (
            (
                words(code(queue.queue)),
                number(wording.count(queue.messages), queue.messages / most),
                number(wording.rate(queue.per_second)),
                number(wording.size(queue.payload_bytes) if queue.payload_bytes else None),
                number(wording.share(queue.answers.failure_rate)
                       if queue.answers.answered else None),
                number(wording.count(queue.dead_letters)),
                number(_point(queue.waiting, "p50")),
                number(_point(queue.waiting, "p99"),
                       queue.waiting.p99 / slowest if queue.waiting else None),
                number(_point(queue.processing, "p99")),
            )
            for queue in rows
        ),
    )  # fmt: skip


def groups(analysis: Analysis) -> str:
    found = [group for group in analysis.groups if group.group]
    if not found:
        return ""
    slowest = sorted(found, key=_slowness)
    return table(
        f"Groups, the slowest first{_cut(found)}",
        ("queue", "group", "#consumers", "#delivered", "#failed", "#p99 waiting",
         "#p99 processing", "#not yet delivered", "#the oldest waits"),
        (
            (
                words(code(group.queue)),
                words(text(group_name(group.group), 80)),
                number(wording.count(group.consumers) if group.consumers else None),
                number(wording.count(group.answers.answered)),
                number(wording.share(group.answers.failure_rate)),
                number(_point(group.waiting, "p99")),
                number(_point(group.processing, "p99")),
                number(wording.count(group.backlog)),
                number(_age(analysis, group)),
            )
            for group in slowest[:MOST_ROWS]
        ),
    )  # fmt: skip


def errors(analysis: Analysis, queue: QueueFigures) -> str:
    window = analysis.window
    found = [error for error in analysis.errors if error.queue == queue.queue]
    if not found or window is None:
        return ""
    return table(
        "Errors, the commonest first",
        ("error", "of", "#times", "#share", "#first", "#last"),
        (
            (
                words(f'<code title="{text(error.example)}">{text(error.error, 160)}</code>'),
                words(f"{text(error.source)}s" if error.source != "delivery" else "deliveries"),
                number(wording.count(error.count)),
                number(wording.share(error.share), error.share),
                number(wording.clock_time(error.first_at, window)),
                number(wording.clock_time(error.last_at, window)),
            )
            for error in found[:_MOST_OF_QUEUE]
        ),
        of=queue.queue,
    )


def partitions(analysis: Analysis, queue: QueueFigures) -> str:
    """Nothing, where there is but one."""
    found = [each for each in analysis.partitions if each.queue == queue.queue]
    if queue.partitions < 2:
        return ""
    waits = any(each.backlog for each in found)
    if waits:
        found.sort(key=lambda each: (-each.backlog, -each.messages, each.partition))
    shown = found[:_MOST_OF_QUEUE]
    order = "fullest" if waits else "busiest"
    return table(
        f"Partitions, the {order} {len(shown)} of {wording.count(queue.partitions)}",
        ("partition", "#messages", "#share of messages", "#not yet delivered", "#share of backlog"),
        (
            (
                words(code(each.partition)),
                number(wording.count(each.messages)),
                number(wording.share(each.share), each.share),
                number(wording.count(each.backlog)),
                number(wording.share(each.backlog_share), each.backlog_share),
            )
            for each in shown
        ),
        of=queue.queue,
    )


def consumers(analysis: Analysis, queue: QueueFigures) -> str:
    """Nothing, where there is but one."""
    found = [each for each in analysis.consumers if each.queue == queue.queue]
    if len(found) < 2:
        return ""
    found.sort(key=lambda each: -(each.processing.p50 if each.processing else 0.0))
    return table(
        "Consumers, the slowest first",
        ("consumer", "group", "#answered", "#failed", "#p50 processing", "#p99 processing"),
        (
            (
                words(code(each.consumer)),
                words(text(group_name(each.group), 80)),
                number(wording.count(each.answers.answered)),
                number(wording.share(each.answers.failure_rate)),
                number(_point(each.processing, "p50")),
                number(_point(each.processing, "p99")),
            )
            for each in found[:_MOST_OF_QUEUE]
        ),
        of=queue.queue,
    )


def jobs(analysis: Analysis) -> str:
    if not analysis.jobs:
        return ""
    return table(
        "What jobs cost",
        ("queue", "#items", "#attempts", "#attempts an item", "#workers' time",
         "#of it for nothing", "#a completed item costs", "#p50", "#p99"),
        (
            (
                words(code(job.queue)),
                number(wording.count(job.items)),
                number(wording.count(job.attempts)),
                number(f"{job.attempts / job.items:.2f}" if job.items else None),
                number(wording.duration(job.seconds)),
                number(*_wasted(job.wasted_seconds, job.seconds)),
                number(wording.duration(job.seconds / job.completed) if job.completed else None),
                number(_point(job.duration, "p50")),
                number(_point(job.duration, "p99")),
            )
            for job in analysis.jobs[:MOST_ROWS]
        ),
    )  # fmt: skip


def changes(analysis: Analysis) -> str:
    if analysis.previous_at is None:
        return ""
    when = wording.full_time(analysis.previous_at)
    if not analysis.changes:
        return (
            f'<p class="card good">Nothing has doubled or halved since the last analysis, '
            f"{text(when)}.</p>"
        )
    return table(
        f"Since the last analysis, {when}{_cut(analysis.changes)}",
        ("queue", "figure", "#then", "#now"),
        (_change(change) for change in analysis.changes[:MOST_ROWS]),
    )


def _change(change: Change) -> list[Cell]:
    was, now = both_in_words(change)
    if change.measure == PRESENCE:
        was, now = (
            "not there" if value is None else shown
            for value, shown in ((change.before, was), (change.now, now))
        )
    return [words(code(change.queue)), words(text(change.measure)), number(was), number(now)]


def _cut(rows: Sequence[object]) -> str:
    return f" ({MOST_ROWS} of {wording.count(len(rows))})" if len(rows) > MOST_ROWS else ""


def _point(spread: Spread | None, name: str) -> str | None:
    return wording.duration(getattr(spread, name)) if spread else None


def _slowness(group: GroupFigures) -> tuple[float, str, str]:
    return -(group.waiting.p99 if group.waiting else 0.0), group.queue, group.group


def _age(analysis: Analysis, group: GroupFigures) -> str | None:
    if group.oldest_at is None or analysis.window is None:
        return None
    return wording.duration(max(analysis.window.last - group.oldest_at, 0) / 1e6)


def _wasted(wasted: float, whole: float) -> tuple[str, float]:
    part = wasted / whole if whole else 0.0
    return wording.share(part), part
