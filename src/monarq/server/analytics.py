"""What happened over time, from the points that the store notes of each queue's counters.

A point holds sums since the queue was made, so what happened between two points is their
difference; the point before the first one asked for is looked up, so that nothing is missing.
Points are read page by page, other calls go in between, and in memory is one value a queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from monarq.clock import SECOND
from monarq.errors import InvalidRequestError
from monarq.model import MetricPoint
from monarq.model.pages import walk
from monarq.store.contract import Store
from monarq.times import iso
from monarq.wire.status import DataPoint, Interval

WIDTHS: dict[Interval, int] = {
    "minute": 60 * SECOND,
    "hour": 3_600 * SECOND,
    "day": 86_400 * SECOND,
}
MAX_INTERVALS = 3_000
MAX_POINTS = 500_000
MAX_ANSWERED = 150_000
"""Points in one answer."""
_STEP = 2_000


@dataclass(frozen=True, slots=True)
class Span:
    """Whole intervals, from the one that holds `since` to the one that holds `until`."""

    interval: Interval
    since: int
    until: int

    def __post_init__(self) -> None:
        if self.until < self.since:
            raise InvalidRequestError("from must not be after to")
        if len(self.starts) > MAX_INTERVALS:
            raise InvalidRequestError(
                f"from and to are {len(self.starts)} intervals apart, more than {MAX_INTERVALS}: "
                "ask for less, or for a longer interval"
            )

    @property
    def width(self) -> int:
        return WIDTHS[self.interval]

    @property
    def starts(self) -> range:
        return range(self.since - self.since % self.width, self.until + 1, self.width)


@dataclass(slots=True)
class _Interval:
    pushed: int = 0
    completed: int = 0
    failed: int = 0
    dead: int = 0
    pending_change: int = 0


@dataclass(slots=True)
class _Series:
    """The intervals of one line of a chart: of a queue, or of all together."""

    pending: int = 0
    """Before the first interval."""
    intervals: dict[int, _Interval] = field(default_factory=dict)

    def add(self, start: int, before: MetricPoint | None, point: MetricPoint) -> None:
        one = self.intervals.setdefault(start, _Interval())
        one.pushed += point.pushed - (before.pushed if before else 0)
        one.completed += point.completed - (before.completed if before else 0)
        one.failed += point.failed - (before.failed if before else 0)
        one.dead += point.dead - (before.dead if before else 0)
        one.pending_change += point.pending - (before.pending if before else 0)

    def points(self, span: Span) -> list[DataPoint]:
        pending = self.pending
        found = []
        for start in span.starts:
            one = self.intervals.get(start, _NOTHING)
            pending += one.pending_change
            found.append(
                DataPoint(
                    timestamp=iso(start),
                    messages=one.pushed,
                    pushed=one.pushed,
                    completed=one.completed,
                    failed=one.failed,
                    dead=one.dead,
                    pending=pending,
                )
            )
        return found


_NOTHING = _Interval()


async def activity(
    store: Store,
    span: Span,
    *,
    queue: str | None = None,
    wanted: Callable[[str], bool] | None = None,
) -> list[DataPoint]:
    """Of one queue, of those that are wanted, or of all together."""
    series = await _read(store, span, queue, wanted, lambda _: "")
    return series.get("", _Series()).points(span)


async def activity_by_queue(
    store: Store, span: Span, queues: list[str]
) -> dict[str, list[DataPoint]]:
    if len(queues) * len(span.starts) > MAX_ANSWERED:
        raise InvalidRequestError(
            f"{len(queues)} queues with {len(span.starts)} intervals are more than {MAX_ANSWERED} "
            "points: ask for fewer queues (limit), for less time, or for a longer interval"
        )
    only = queues[0] if len(queues) == 1 else None
    names = set(queues)
    series = await _read(store, span, only, names.__contains__, lambda name: name)

    def points() -> dict[str, list[DataPoint]]:
        return {name: series.get(name, _Series()).points(span) for name in queues}

    return await asyncio.to_thread(points)


async def _read(
    store: Store,
    span: Span,
    queue: str | None,
    wanted: Callable[[str], bool] | None,
    line: Callable[[str], str],
) -> dict[str, _Series]:
    series: dict[str, _Series] = {}
    last: dict[str, MetricPoint] = {}
    first = span.starts[0]
    async for point in walk(
        lambda limit, after: store.metrics_before(first, queue=queue, limit=limit, after=after)
    ):
        if wanted is None or wanted(point.queue):
            last[point.queue] = point
            series.setdefault(line(point.queue), _Series()).pending += point.pending
    count = 0
    async for point in walk(
        lambda limit, after: store.metrics(
            queue=queue, since=first, until=span.until, limit=limit, after=after
        ),
        step=_STEP,
    ):
        count += 1
        if count > MAX_POINTS:
            raise InvalidRequestError(
                f"more than {MAX_POINTS} points are noted between from and to: "
                "ask for less time, or for one queue"
            )
        if wanted is not None and not wanted(point.queue):
            continue
        start = point.at - point.at % span.width
        one = series.setdefault(line(point.queue), _Series())
        one.add(start, last.get(point.queue), point)
        last[point.queue] = point
    return series
