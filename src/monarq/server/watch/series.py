"""Charts over time, from 15 minutes to 30 days, with so many steps that a page can draw them.

Of everything together they are made of the minutes that `history` notes, of one queue of the
points that the store notes of its counters; the step that is not over yet, of the counters now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monarq.clock import SECOND
from monarq.model import Latency, MetricPoint, Page
from monarq.model.pages import walk
from monarq.server.watch.history import MINUTE, slots
from monarq.server.watch.percentiles import of_latencies
from monarq.server.watch.views import View
from monarq.store.contract import Store
from monarq.times import iso
from monarq.wire.dashboard import RangeName, SeriesAnswer

# Length and step, in minutes.
RANGES: dict[RangeName, tuple[int, int]] = {
    "15m": (15, 1),
    "1h": (60, 1),
    "6h": (360, 2),
    "24h": (1440, 10),
    "7d": (10_080, 60),
    "30d": (43_200, 240),
}
_SAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class Mark:
    """How the counters stood at a time."""

    at: int
    pushed: int
    completed: int
    failed: int
    dead: int
    pending: int
    lag_seconds: float | None = None
    percentiles: tuple[float, float, float] | None = None


@dataclass(frozen=True, slots=True)
class Steps:
    name: RangeName
    begin: int
    width: int
    count: int
    now: int

    @classmethod
    def until(cls, name: RangeName, now: int) -> Steps:
        length, step = RANGES[name]
        width = step * MINUTE
        end = now // width * width
        count = length // step
        return cls(name, end - (count - 1) * width, width, count, now)

    def place(self, at: int) -> int:
        return (at - self.begin) // self.width


async def series_of_all(store: Store, name: RangeName, view: View) -> SeriesAnswer:
    steps = Steps.until(name, view.now.at)
    noted = await slots(store, steps.begin, steps.now)
    marks = [
        # What is noted at the end of a minute belongs to it.
        Mark(
            at + MINUTE - 1,
            slot.pushed,
            slot.completed,
            slot.failed,
            slot.dead,
            slot.pending,
            slot.lag_seconds,
            slot.percentiles,
        )
        for at, slot in noted
    ]
    marks += _seen(view, marks[-1].at if marks else 0)
    newest = await store.latencies(max(steps.begin, steps.now - MINUTE), steps.now, samples=300)
    return _series(steps, marks, _by_step(steps, newest))


async def series_of_queue(store: Store, name: RangeName, view: View, queue: str) -> SeriesAnswer:
    steps = Steps.until(name, view.now.at)
    before: Page[MetricPoint] = await store.metrics_before(steps.begin, queue=queue, limit=1)
    marks = [_mark(point) for point in before.rows]
    points = walk(
        lambda limit, after: store.metrics(
            queue=queue, since=steps.begin, until=steps.now, limit=limit, after=after
        )
    )
    marks.extend([_mark(point) async for point in points])
    marks += _seen(view, marks[-1].at if marks else 0, queue)
    found = await store.latencies(steps.begin, steps.now, queue=queue, samples=_SAMPLES)
    return _series(steps, marks, _by_step(steps, found))


def _seen(view: View, since: int, queue: str | None = None) -> list[Mark]:
    """The moments that were looked at lately."""
    views = [View(view.before), view] if view.before.at > since else [view]
    marks = []
    for one in views:
        flows = [flow for flow in one.now.queues.values() if queue is None or flow.queue == queue]
        groups = [group for named in one.now.groups.values() for group in named.values()]
        marks.append(
            Mark(
                one.now.at,
                sum(flow.pushed for flow in flows),
                sum(flow.completed for flow in flows),
                sum(flow.failed for flow in flows),
                sum(flow.dead for flow in flows),
                sum(flow.pending for flow in flows),
                max(map(one.lag_seconds, groups), default=0.0) if queue is None else None,
            )
        )
    return marks


def _mark(point: MetricPoint) -> Mark:
    return Mark(point.at, point.pushed, point.completed, point.failed, point.dead, point.pending)


def _by_step(
    steps: Steps, found: Sequence[Latency]
) -> dict[int, tuple[float, float, float] | None]:
    by_step: dict[int, list[Latency]] = {}
    for one in found:
        by_step.setdefault(steps.place(one.at), []).append(one)
    return {place: of_latencies(some) for place, some in by_step.items()}


class _Cell:
    """What came together in one step."""

    __slots__ = ("dead", "failed", "lag_seconds", "out", "pending", "percentiles", "pushed")

    def __init__(self) -> None:
        self.pushed = self.out = self.failed = self.dead = 0
        self.pending = 0
        self.lag_seconds: float | None = None
        self.percentiles: list[tuple[float, float, float]] = []


def _series(
    steps: Steps, marks: list[Mark], measured: dict[int, tuple[float, float, float] | None]
) -> SeriesAnswer:
    cells: list[_Cell | None] = [None] * steps.count
    last: Mark | None = None
    for mark in marks:
        place = steps.place(mark.at)
        if last is not None and place >= 0:
            _spread(cells, steps, last, mark)
        if 0 <= place < steps.count:
            cell = cells[place] or _Cell()
            cells[place] = cell
            cell.pending, cell.lag_seconds = mark.pending, mark.lag_seconds
            if mark.percentiles is not None:
                cell.percentiles.append(mark.percentiles)
        last = mark
    percentiles = [
        measured.get(place) or (_worst(cell.percentiles) if cell is not None else None)
        for place, cell in enumerate(cells)
    ]
    seconds = [
        max(1.0, min(steps.width, steps.now - steps.begin - place * steps.width) / SECOND)
        for place in range(steps.count)
    ]

    def rates(name: str) -> list[float | None]:
        return [
            None if cell is None else round(getattr(cell, name) / length, 4)
            for cell, length in zip(cells, seconds, strict=True)
        ]

    return SeriesAnswer(
        range=steps.name,
        from_=iso(steps.begin),
        to=iso(steps.now),
        step_seconds=steps.width // SECOND,
        times=[iso(steps.begin + place * steps.width) for place in range(steps.count)],
        in_=rates("pushed"),
        out=rates("out"),
        failed=rates("failed"),
        dead=rates("dead"),
        pending=[None if cell is None else cell.pending for cell in cells],
        lag_seconds=[None if cell is None else cell.lag_seconds for cell in cells],
        p50=[None if one is None else one[0] for one in percentiles],
        p95=[None if one is None else one[1] for one in percentiles],
        p99=[None if one is None else one[2] for one in percentiles],
    )


def _spread(cells: list[_Cell | None], steps: Steps, last: Mark, mark: Mark) -> None:
    """What happened between two marks happened in the step of the later one; the steps between
    them were quiet, since a mark is only made when something changed."""
    place = steps.place(mark.at)
    for between in range(max(0, steps.place(last.at) + 1), min(place, steps.count)):
        quiet = cells[between] = _Cell()
        quiet.pending, quiet.lag_seconds = last.pending, last.lag_seconds
    if place >= steps.count:
        return
    cell = cells[place] = cells[place] or _Cell()
    cell.pushed += max(0, mark.pushed - last.pushed)
    cell.out += max(0, mark.completed - last.completed)
    cell.failed += max(0, mark.failed - last.failed)
    cell.dead += max(0, mark.dead - last.dead)


def _worst(found: list[tuple[float, float, float]]) -> tuple[float, float, float] | None:
    """Of several minutes: the middle of their medians, and the worst of the others."""
    if not found:
        return None
    medians = sorted(one[0] for one in found)
    return (
        medians[len(medians) // 2],
        max(one[1] for one in found),
        max(one[2] for one in found),
    )
