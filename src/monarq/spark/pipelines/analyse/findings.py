"""What is worth a sentence, and in which order. Every rule is a function from the figures to
findings; the numbers that decide stand above it.

Findings are ranked by severity, then by about how many messages they concern. A rule may not
look at anything but the figures: the same figures give the same sentences.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from monarq.spark.pipelines.analyse import wording
from monarq.spark.pipelines.analyse.figures import (
    WORKERS,
    Analysis,
    AnswerSeries,
    ErrorFigures,
    ErrorSource,
    Finding,
    GroupFigures,
    QueueFigures,
    Severity,
)

Rule = Callable[[Analysis], Iterator[Finding]]

_ORDER = [Severity.SERIOUS, Severity.NOTABLE, Severity.MINOR]


def rank(findings: list[Finding]) -> list[Finding]:
    return sorted(
        findings,
        key=lambda each: (_ORDER.index(each.severity), -each.weight, each.queue, each.text),
    )


# --- dead letters and failures ---------------------------------------------------------------

SERIOUS_DEAD_SHARE = 0.01
#: Of what went wrong: an error that is worth naming.
NAMED_ERROR_SHARE = 0.2


def dead_letters(analysis: Analysis) -> Iterator[Finding]:
    for queue in analysis.queues:
        if not queue.dead_letters:
            continue
        part = queue.dead_letters / queue.messages if queue.messages else 1.0
        text = f"{wording.name(queue.queue)}: {_number(queue.dead_letters, 'dead letter')}"
        if queue.messages:
            text += f", {wording.share(part)} of its {_things(queue)}"
        errors = _kinds(analysis, queue.queue, ErrorSource.DEAD_LETTER)
        yield Finding(
            severity=Severity.SERIOUS if part >= SERIOUS_DEAD_SHARE else Severity.NOTABLE,
            kind="dead letters",
            queue=queue.queue,
            group=None,
            text=text + _mostly(errors, queue.dead_letters, "of them"),
            at=min((error.first_at for error in errors), default=None),
            weight=queue.dead_letters * 10,
        )


NOTABLE_FAILURES = 0.05
SERIOUS_FAILURES = 0.2
LEAST_FAILURES = 10


def failure_rates(analysis: Analysis) -> Iterator[Finding]:
    for group in analysis.groups:
        answers = group.answers
        if answers.unsuccessful < LEAST_FAILURES or answers.failure_rate < NOTABLE_FAILURES:
            continue
        source = ErrorSource.ATTEMPT if group.group == WORKERS else ErrorSource.DELIVERY
        what = "attempts" if group.group == WORKERS else "deliveries"
        text = (
            f"{wording.subject(group.queue, group.group)}: "
            f"{wording.share(answers.failure_rate)} of the {what} failed "
            f"({wording.count(answers.unsuccessful)} of {wording.count(answers.answered)})"
        )
        errors = _kinds(analysis, group.queue, source)
        is_serious = answers.failure_rate >= SERIOUS_FAILURES
        yield Finding(
            severity=Severity.SERIOUS if is_serious else Severity.NOTABLE,
            kind="failures",
            queue=group.queue,
            group=group.group,
            text=text + _mostly(errors, sum(error.count for error in errors), "of the failures"),
            weight=answers.unsuccessful,
        )


NOTABLE_EXPIRED = 0.01
LEAST_EXPIRED = 3


def expired_leases(analysis: Analysis) -> Iterator[Finding]:
    for group in analysis.groups:
        answers = group.answers
        part = answers.expired / answers.answered if answers.answered else 0.0
        if answers.expired < LEAST_EXPIRED or part < NOTABLE_EXPIRED:
            continue
        yield Finding(
            severity=Severity.NOTABLE,
            kind="expired leases",
            queue=group.queue,
            group=group.group,
            text=f"{wording.subject(group.queue, group.group)}: the lease ran out on "
            f"{_number(answers.expired, 'delivery', 'deliveries')} "
            f"({wording.share(part)}): workers died, or need longer than the lease time",
            weight=answers.expired,
        )


# --- backlog ---------------------------------------------------------------------------------

LEAST_BACKLOG = 10
LEAST_BACKLOG_SECONDS = 60.0
SERIOUS_BACKLOG_SECONDS = 600.0
#: Of a backlog, and of what would be its part if all partitions were alike.
SKEWED_SHARE = 0.3
SKEWED_FACTOR = 3.0
#: By how much a backlog must have grown in the last third of the time.
GROWING_FACTOR = 1.5


def backlogs(analysis: Analysis) -> Iterator[Finding]:
    window = analysis.window
    if window is None:
        return
    series = {(each.queue, each.group): each for each in analysis.deliveries}
    for group in analysis.groups:
        if group.backlog < LEAST_BACKLOG or group.oldest_at is None:
            continue
        age = (window.last - group.oldest_at) / 1e6
        if age < LEAST_BACKLOG_SECONDS:
            continue
        found = series.get((group.queue, group.group))
        growing = found is not None and _grows(found.backlog)
        text = (
            f"{wording.subject(group.queue, group.group)}: "
            f"{_number(group.backlog, 'message')} {'wait' if group.backlog > 1 else 'waits'} "
            f"to be delivered{' and the backlog grows' if growing else ''}; "
            f"the oldest for {wording.duration(age)}"
        )
        is_serious = age >= SERIOUS_BACKLOG_SECONDS or growing
        yield Finding(
            severity=Severity.SERIOUS if is_serious else Severity.NOTABLE,
            kind="backlog",
            queue=group.queue,
            group=group.group,
            text=text + _skew(analysis, group),
            at=group.oldest_at,
            weight=group.backlog,
        )


def _skew(analysis: Analysis, group: GroupFigures) -> str:
    mine = [
        each
        for each in analysis.partitions
        if each.queue == group.queue and each.backlog_group == group.group
    ]
    fullest = max(mine, key=lambda each: each.backlog, default=None)
    partitions = next((each.partitions for each in analysis.queues if each.queue == group.queue), 1)
    if fullest is None or partitions < 2:
        return ""
    if fullest.backlog_share < max(SKEWED_SHARE, SKEWED_FACTOR / partitions):
        return ""
    return (
        f"; partition {wording.name(fullest.partition)} holds "
        f"{wording.share(fullest.backlog_share)} of the backlog"
    )


def _grows(backlog: list[int]) -> bool:
    return len(backlog) >= 6 and backlog[-1] >= GROWING_FACTOR * max(
        backlog[len(backlog) * 2 // 3 - 1], 1
    )


#: For how many buckets a group must have done nothing.
IDLE_BUCKETS = 5


def standstills(analysis: Analysis) -> Iterator[Finding]:
    window = analysis.window
    series = {(each.queue, each.group): each for each in analysis.deliveries}
    for group in analysis.groups:
        found = series.get((group.queue, group.group))
        if window is None or found is None or group.backlog < LEAST_BACKLOG:
            continue
        last = max((place for place, done in enumerate(_handled(found)) if done), default=-1)
        if window.buckets - 1 - last < IDLE_BUCKETS:
            continue
        yield Finding(
            severity=Severity.SERIOUS,
            kind="standstill",
            queue=group.queue,
            group=group.group,
            text=f"{wording.subject(group.queue, group.group)}: nothing was answered after "
            f"{wording.clock_time(window.at(last + 1), window)}, though "
            f"{_number(group.backlog, 'message')} wait to be delivered",
            at=window.at(last + 1),
            weight=group.backlog * 2,
        )


def _handled(series: AnswerSeries) -> list[int]:
    return [sum(each) for each in zip(series.completed, series.failed, series.dead, strict=True)]


def unconsumed(analysis: Analysis) -> Iterator[Finding]:
    consumed = {group.queue for group in analysis.groups}
    for queue in analysis.queues:
        if queue.queue not in consumed and queue.messages >= LEAST_BACKLOG:
            yield Finding(
                severity=Severity.NOTABLE,
                kind="unconsumed",
                queue=queue.queue,
                group=None,
                text=f"{wording.name(queue.queue)}: nobody consumes it; "
                f"{_number(queue.messages, 'message')} were pushed and none was delivered",
                weight=queue.messages,
            )


# --- unevenness ------------------------------------------------------------------------------

HOT_SHARE = 0.25
HOT_FACTOR = 5.0
LEAST_PARTITIONS = 4
LEAST_MESSAGES = 100


def hot_partitions(analysis: Analysis) -> Iterator[Finding]:
    for queue in analysis.queues:
        if queue.partitions < LEAST_PARTITIONS or queue.messages < LEAST_MESSAGES:
            continue
        mine = [each for each in analysis.partitions if each.queue == queue.queue]
        fullest = max(mine, key=lambda each: each.messages, default=None)
        if fullest and fullest.share >= max(HOT_SHARE, HOT_FACTOR / queue.partitions):
            yield Finding(
                severity=Severity.MINOR,
                kind="hot partition",
                queue=queue.queue,
                group=None,
                text=f"{wording.name(queue.queue)}: partition {wording.name(fullest.partition)} "
                f"got {wording.share(fullest.share)} of the messages "
                f"(one of {wording.count(queue.partitions)} partitions)",
                weight=fullest.messages,
            )


SLOW_FACTOR = 3.0
LEAST_ANSWERS = 20
LEAST_SLOW_SECONDS = 0.05


def slow_consumers(analysis: Analysis) -> Iterator[Finding]:
    teams: dict[tuple[str, str], list[tuple[float, str, int]]] = defaultdict(list)
    for each in analysis.consumers:
        if each.processing and each.processing.count >= LEAST_ANSWERS:
            teams[each.queue, each.group].append(
                (each.processing.p50, each.consumer, each.processing.count)
            )
    for (queue, group), team in teams.items():
        if len(team) < 2:
            continue
        *others, (slowest, consumer, messages) = sorted(team)
        usual = others[len(others) // 2][0]
        if slowest >= max(LEAST_SLOW_SECONDS, SLOW_FACTOR * usual):
            yield Finding(
                severity=Severity.NOTABLE,
                kind="slow consumer",
                queue=queue,
                group=group,
                text=f"{wording.subject(queue, group)}: consumer {wording.name(consumer)} takes "
                f"{wording.duration(slowest)} (median) where the others take "
                f"{wording.duration(usual)}",
                weight=messages,
            )


WASTED_SHARE = 0.2
LEAST_WASTED_SECONDS = 60.0


def wasted_work(analysis: Analysis) -> Iterator[Finding]:
    for job in analysis.jobs:
        part = job.wasted_seconds / job.seconds if job.seconds else 0.0
        if job.wasted_seconds < LEAST_WASTED_SECONDS or part < WASTED_SHARE:
            continue
        yield Finding(
            severity=Severity.NOTABLE,
            kind="wasted work",
            queue=job.queue,
            group=WORKERS,
            text=f"{wording.name(job.queue)}: {wording.share(part)} of the workers' time "
            f"({wording.duration(job.wasted_seconds)} of {wording.duration(job.seconds)}) went "
            "to attempts that did not complete",
            weight=job.attempts - job.completed,
        )


# --- shared ----------------------------------------------------------------------------------


def _kinds(analysis: Analysis, queue: str, source: ErrorSource) -> list[ErrorFigures]:
    return [each for each in analysis.errors if each.queue == queue and each.source is source]


def _mostly(errors: list[ErrorFigures], total: int, of_what: str) -> str:
    """`; 94 % of them are TimeoutError`."""
    kinds: Counter[str] = Counter()
    for error in errors:
        kinds[error.kind] += error.count
    if not kinds or not total:
        return ""
    kind, number = kinds.most_common(1)[0]
    part = min(number / total, 1.0)
    if part < NAMED_ERROR_SHARE:
        return ""
    if part == 1:
        return f"; {'it is' if total == 1 else f'all {of_what} are'} {wording.name(kind)}"
    return f"; {wording.share(part)} {of_what} are {wording.name(kind)}"


def _number(number: int, one: str, many: str | None = None) -> str:
    return f"{wording.count(number)} {one if number == 1 else many or one + 's'}"


def _things(queue: QueueFigures) -> str:
    return "items" if queue.kind == "work" else "messages"
