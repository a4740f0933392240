"""Findings about time: what has changed during the window, and since the last analysis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from monarq.spark.pipelines.analyse import wording
from monarq.spark.pipelines.analyse.comparing import PRESENCE, new_errors
from monarq.spark.pipelines.analyse.figures import (
    Analysis,
    Change,
    Finding,
    Severity,
    Window,
)
from monarq.spark.pipelines.analyse.levels import LEAST_FACTOR, Level, find_levels

#: Shorter times are all alike to people.
FLOOR_SECONDS = 0.05
#: A wait that somebody notices.
SERIOUS_SECONDS = 5.0
SERIOUS_FACTOR = 4.0
#: Fewer messages in a bucket than this are a matter of chance.
FLOOR_MESSAGES = 5
#: Of the series, those with the most messages: the rest would only make the list longer.
MOST_SERIES = 40


def slower(analysis: Analysis) -> Iterator[Finding]:
    """Waiting and processing times per queue and group."""
    window = analysis.window
    if window is None:
        return
    busiest = {(group.queue, group.group) for group in analysis.groups[:MOST_SERIES]}
    for series in analysis.deliveries:
        if (series.queue, series.group) not in busiest:
            continue
        handled = [sum(each) for each in zip(series.completed, series.failed, strict=True)]
        for what, values in (
            ("p99 waiting", series.waiting_p99),
            ("p99 processing", series.processing_p99),
        ):
            levels = find_levels(values, FLOOR_SECONDS)
            if len(levels) < 2:
                continue
            worst = max(levels, key=lambda level: level.value)
            rose = levels[-1].value >= LEAST_FACTOR * levels[0].value
            yield Finding(
                severity=_severity(levels) if rose else _past(levels),
                kind=what,
                queue=series.queue,
                group=series.group,
                text=f"{wording.subject(series.queue, series.group)}: "
                f"{what} {_course(levels, window, wording.duration)}",
                at=window.at(levels[1].first),
                weight=sum(handled[worst.first : worst.last + 1]),
            )


def traffic(analysis: Analysis) -> Iterator[Finding]:
    """Pushes per queue."""
    window = analysis.window
    if window is None:
        return
    busiest = {queue.queue for queue in analysis.queues[:MOST_SERIES]}
    for series in analysis.pushes:
        levels = find_levels(series.pushed, FLOOR_MESSAGES)
        if series.queue not in busiest or len(levels) < 2:
            continue

        in_words = _rates(levels, window)
        stopped = levels[-1].value == 0
        if stopped:
            course = (
                f"stopped after {wording.clock_time(window.at(levels[-1].first), window)}, "
                f"from {in_words(levels[-2].value)}"
            )
        else:
            course = _course(levels, window, in_words)
        yield Finding(
            severity=Severity.NOTABLE if stopped else Severity.MINOR,
            kind="pushes",
            queue=series.queue,
            group=None,
            text=f"{wording.name(series.queue)}: pushes {course}",
            at=window.at(levels[-1 if stopped else 1].first),
            weight=sum(series.pushed) / 10,
        )


def since_last(analysis: Analysis, before: Analysis) -> Iterator[Finding]:
    """What the comparison with the analysis before has shown."""
    when = wording.full_time(before.generated_at)
    for change in analysis.changes:
        yield Finding(
            severity=_severity_of(change),
            kind="since the last analysis",
            queue=change.queue,
            group=None,
            text=f"{wording.name(change.queue)}: {_changed(change, when)}",
        )
    for queue, kinds in new_errors(analysis, before).items():
        named = ", ".join(f"{wording.name(kind)} ({wording.count(n)})" for kind, n in kinds[:3])
        yield Finding(
            severity=Severity.NOTABLE,
            kind="since the last analysis",
            queue=queue,
            group=None,
            text=f"{wording.name(queue)}: errors that it did not have at the last analysis "
            f"({when}): {named}",
            weight=sum(number for _, number in kinds),
        )


def _rates(levels: Sequence[Level], window: Window) -> Callable[[float], str]:
    """All in one unit, so that they can be compared."""
    rates = [level.value / window.bucket_seconds for level in levels]
    lowest = min((rate for rate in rates if rate), default=None)
    return lambda messages: wording.rate(messages / window.bucket_seconds, lowest)


def _severity(levels: Sequence[Level]) -> Severity:
    """Of a time that is longer in the end than it was in the beginning."""
    before, now = levels[0].value, levels[-1].value
    is_serious = now >= SERIOUS_SECONDS and now >= SERIOUS_FACTOR * max(before, FLOOR_SECONDS)
    return Severity.SERIOUS if is_serious else Severity.NOTABLE


def _past(levels: Sequence[Level]) -> Severity:
    """Of a time that is no longer than it was: was it ever?"""
    worst = max(level.value for level in levels[1:])
    return Severity.NOTABLE if worst >= LEAST_FACTOR * levels[0].value else Severity.MINOR


def _course(levels: Sequence[Level], window: Window, in_words: Callable[[float], str]) -> str:
    """`rose from 1.2 s to 9.8 s after 14:05 and fell to 1.1 s after 14:40`."""
    parts = [
        f"{'rose' if after.value > before.value else 'fell'} "
        f"{f'from {in_words(before.value)} ' if place == 0 else ''}"
        f"to {in_words(after.value)} after {wording.clock_time(window.at(after.first), window)}"
        for place, (before, after) in enumerate(pairwise(levels))
    ]
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _severity_of(change: Change) -> Severity:
    if change.before is None or change.now is None:
        return Severity.MINOR
    is_worse = change.now > change.before and change.unit != "per second"
    return Severity.NOTABLE if is_worse else Severity.MINOR


def _changed(change: Change, when: str) -> str:
    if change.measure == PRESENCE and change.before is None:
        return f"new since the last analysis ({when}), {wording.count(change.now or 0)} messages"
    if change.measure == PRESENCE:
        then = wording.count(change.before or 0)
        return f"nothing any more; the last analysis ({when}) had {then} messages"
    was, now = both_in_words(change)
    return f"{change.measure} {was} at the last analysis ({when}), {now} now"


def both_in_words(change: Change) -> tuple[str, str]:
    """The figure then and now, in one unit."""
    values = (change.before or 0.0, change.now or 0.0)
    lowest = min((value for value in values if value), default=None)
    match change.unit:
        case "s":
            was, now = map(wording.duration, values)
        case "share":
            was, now = map(wording.share, values)
        case "per second":
            was, now = (wording.rate(value, lowest) for value in values)
        case _:
            was, now = map(wording.count, values)
    return was, now
