"""Which charts an analysis is shown in, overall and for each queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from monarq.spark.pipelines.analyse import wording
from monarq.spark.pipelines.analyse.figures import (
    WORKERS,
    Analysis,
    AnswerSeries,
    PushSeries,
    QueueFigures,
    Window,
)
from monarq.spark.pipelines.analyse.levels import find_levels
from monarq.spark.pipelines.analyse.report.scales import Scale, counting, lasting
from monarq.spark.pipelines.analyse.report.svg import Chart, Line, Values
from monarq.spark.pipelines.analyse.shifts import FLOOR_SECONDS

STYLES = ("s1", "s2", "s3", "s4", "s5", "s6")

#: More lines than this cannot be told apart.
MOST_LINES = 4
_MOST_AREAS = 5


def overview(analysis: Analysis) -> list[Chart]:
    window = analysis.window
    if window is None:
        return []
    return [
        *_pushes_by_queue(analysis, window),
        *_waiting_by_queue(analysis, window),
    ]


def of_queue(key: str, analysis: Analysis, queue: QueueFigures) -> list[Chart]:
    window = analysis.window
    if window is None:
        return []
    groups = {
        group.group: place
        for place, group in enumerate(
            [group for group in analysis.groups if group.queue == queue.queue][:MOST_LINES]
        )
    }
    series = sorted(
        (
            each
            for each in analysis.deliveries
            if each.queue == queue.queue and each.group in groups
        ),
        key=lambda each: groups[each.group],
    )
    pushes = next((each for each in analysis.pushes if each.queue == queue.queue), None)
    charts = [
        _flow(f"{key}-flow", window, pushes, series),
        _spread_chart(f"{key}-wait", "Waiting until the first delivery", window, series, "waiting"),
        _spread_chart(
            f"{key}-work", "Processing, from lease to answer", window, series, "processing"
        ),
        _backlog(f"{key}-backlog", window, series),
    ]
    return [chart for chart in charts if chart is not None]


def group_name(group: str) -> str:
    return {WORKERS: "workers", "__QUEUE_MODE__": "default group"}.get(group, group)


# --- one queue -------------------------------------------------------------------------------


def _flow(
    key: str, window: Window, pushes: PushSeries | None, series: Sequence[AnswerSeries]
) -> Chart | None:
    """What came and what went. With one group, also what failed."""
    lines: list[tuple[str, Sequence[float], str]] = []
    if pushes:
        lines.append(("pushed", pushes.pushed, "faint"))
    for place, each in enumerate(series):
        name = "completed" if len(series) == 1 else f"completed by {group_name(each.group)}"
        lines.append((name, each.completed, STYLES[place]))
    failed = [
        sum(each.failed[place] + each.dead[place] + each.expired[place] for each in series)
        for place in range(window.buckets)
    ]
    if any(failed):
        lines.append(("failed", failed, "bad"))
    if not lines:
        return None
    return _rate_chart(key, "Pushed and completed" if pushes else "Attempts", window, lines)


def _rate_chart(
    key: str,
    title: str,
    window: Window,
    lines: Sequence[tuple[str, Sequence[float], str]],
    *,
    stacked: bool = False,
) -> Chart:
    per_second = [
        Line(
            name,
            [value / window.seconds_in(place) for place, value in enumerate(values)],
            style,
        )
        for name, values, style in lines
    ]
    if stacked:
        highest = max(
            sum(value or 0.0 for value in each)
            for each in zip(*(line.values for line in per_second), strict=True)
        )
    else:
        highest = max(_known(line.values for line in per_second), default=0.0)
    seconds, unit = wording.rate_unit(highest)
    scaled = [
        Line(line.name, [(value or 0.0) * seconds for value in line.values], line.style)
        for line in per_second
    ]
    return Chart(
        key=key,
        title=f"{title}, a {unit}",
        window=window,
        scale=counting(highest * seconds),
        lines=scaled,
        in_words=lambda value: f"{wording.short_count(value)} a {unit}",
        stacked=stacked,
    )


def _spread_chart(
    key: str, title: str, window: Window, series: Sequence[AnswerSeries], what: str
) -> Chart | None:
    """One group: three percentiles. Several: the p99 of each."""
    if len(series) == 1:
        points = (("p99", "s1"), ("p95", "s3"), ("p50", "faint"))
        lines = [Line(name, getattr(series[0], f"{what}_{name}"), style) for name, style in points]
    else:
        lines = [
            Line(f"p99 {group_name(each.group)}", getattr(each, f"{what}_p99"), STYLES[place])
            for place, each in enumerate(series)
        ]
    return _duration_chart(key, title, window, lines)


def _duration_chart(key: str, title: str, window: Window, lines: list[Line]) -> Chart | None:
    lines = [line for line in lines if any(value is not None for value in line.values)]
    if not lines:
        return None
    scale = _duration_scale(line.values for line in lines)
    return Chart(
        key=key,
        title=title + (", logarithmic" if scale.is_log else ""),
        window=window,
        scale=scale,
        lines=lines,
        in_words=wording.duration,
        marks=sorted({level.first for level in find_levels(lines[0].values, FLOOR_SECONDS)[1:]}),
    )


def _duration_scale(values: Iterable[Values]) -> Scale:
    known = _known(values)
    return lasting(min((value for value in known if value > 0), default=0.0), max(known))


def _backlog(key: str, window: Window, series: Sequence[AnswerSeries]) -> Chart | None:
    found = [(place, each) for place, each in enumerate(series) if any(each.backlog)]
    if not found:
        return None
    return Chart(
        key=key,
        title="Not yet delivered, messages",
        window=window,
        scale=counting(max(max(each.backlog) for _, each in found)),
        lines=[Line(group_name(each.group), each.backlog, STYLES[place]) for place, each in found],
        in_words=wording.count,
    )


# --- all queues ------------------------------------------------------------------------------


def _pushes_by_queue(analysis: Analysis, window: Window) -> list[Chart]:
    order = [queue.queue for queue in analysis.queues]
    pushes = sorted(analysis.pushes, key=lambda each: order.index(each.queue))
    if not pushes:
        return []
    shown = pushes if len(pushes) <= _MOST_AREAS + 1 else pushes[:_MOST_AREAS]
    lines: list[tuple[str, Sequence[float], str]] = [
        (each.queue, each.pushed, STYLES[place]) for place, each in enumerate(shown)
    ]
    rest = pushes[len(shown) :]
    if rest:
        others = [sum(each) for each in zip(*(series.pushed for series in rest), strict=True)]
        lines.append((f"{len(rest)} others", others, "faint"))
    return [_rate_chart("all-pushes", "Pushed", window, lines, stacked=True)]


def _waiting_by_queue(analysis: Analysis, window: Window) -> list[Chart]:
    """The worst group of each of the queues that wait longest."""
    worst: dict[str, tuple[float, AnswerSeries]] = {}
    spreads = {(each.queue, each.group): each.waiting for each in analysis.groups}
    for series in analysis.deliveries:
        spread = spreads.get((series.queue, series.group))
        if spread and spread.p99 >= worst.get(series.queue, (-1.0, series))[0]:
            worst[series.queue] = (spread.p99, series)
    longest = sorted(worst.values(), key=lambda each: (-each[0], each[1].queue))[:MOST_LINES]
    order = [queue.queue for queue in analysis.queues]
    lines = [
        Line(series.queue, series.waiting_p99, STYLES[order.index(series.queue) % len(STYLES)])
        for _, series in longest
    ]
    chart = _duration_chart("all-waiting", "p99 waiting, slowest queues", window, lines)
    return [chart] if chart else []


def _known(values: Iterable[Values]) -> list[float]:
    return [value for each in values for value in each if value is not None]
