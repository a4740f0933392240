"""Whether a series has changed its level, and when: the rule behind "rose after 14:05".

The series is cut into at most `MOST_LEVELS` pieces so that the sum of the distances of all points
to the median of their piece is least, measured in factors (logarithms). As many pieces are taken
as there can be with every cut being a change that nobody would doubt:

- a piece has at least `LEAST_POINTS` points,
- the medians on both sides differ by at least `LEAST_FACTOR`,
- four fifths of the points on one side lie beyond four fifths of those on the other.

Medians and ranks do not care how far out a single point lies: a spike is no change. Of series
that are nothing but noise with a spread of a factor of 1.8, about one in twenty-five seems to
change by this rule; with half that spread, none.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

MOST_LEVELS = 4
LEAST_POINTS = 6
LEAST_FACTOR = 2.0
MOST_PART = 0.8


@dataclass(frozen=True)
class Level:
    first: int
    """The index of its first and last point in the series."""
    last: int
    value: float
    """The median."""


def find_levels(values: Sequence[float | None], floor: float) -> list[Level]:
    """The levels in order; one if nothing has changed, none if nothing was measured.

    Below `floor` (positive), differences mean nothing.
    """
    places = [place for place, value in enumerate(values) if value is not None]
    points = [value for value in values if value is not None]
    if not points:
        return []
    logs = [math.log(max(point, floor)) for point in points]
    whole = [(0, len(points))]
    best = whole
    if max(logs) - min(logs) >= math.log(LEAST_FACTOR):
        costs = _costs(logs)
        for pieces in range(2, MOST_LEVELS + 1):
            cuts = _cut(costs, len(logs), pieces)
            if cuts and all(_differ(logs[a:b], logs[b:c]) for (a, b), (_, c) in pairwise(cuts)):
                best = cuts
    return [Level(places[a], places[b - 1], median(points[a:b])) for a, b in best]


def _costs(logs: Sequence[float]) -> dict[tuple[int, int], float]:
    """For each piece [a, b): the sum of distances to its median."""
    costs = {}
    for start in range(len(logs)):
        ordered: list[float] = []
        for end in range(start, len(logs)):
            insort(ordered, logs[end])
            half = len(ordered) // 2
            costs[start, end + 1] = sum(ordered[-half:]) - sum(ordered[:half]) if half else 0.0
    return costs


def _cut(
    costs: dict[tuple[int, int], float], length: int, pieces: int
) -> list[tuple[int, int]] | None:
    """The cheapest way to cut into so many pieces, each long enough."""
    best: dict[int, tuple[float, list[tuple[int, int]]]] = {0: (0.0, [])}
    for _ in range(pieces):
        reached: dict[int, tuple[float, list[tuple[int, int]]]] = {}
        for start, (cost, cuts) in best.items():
            for end in range(start + LEAST_POINTS, length + 1):
                total = cost + costs[start, end]
                if end not in reached or total < reached[end][0] - 1e-12:
                    reached[end] = (total, [*cuts, (start, end)])
        best = reached
    return best[length][1] if length in best else None


def _differ(before: Sequence[float], after: Sequence[float]) -> bool:
    low, high = sorted((before, after), key=median)
    factor = median(high) - median(low)
    is_clear = _ranked(low, MOST_PART) < _ranked(high, 1 - MOST_PART)
    return is_clear and factor >= math.log(LEAST_FACTOR) - 1e-9


def _ranked(values: Sequence[float], part: float) -> float:
    """By rank: no value between two that were measured."""
    ordered = sorted(values)
    return ordered[round((len(ordered) - 1) * part)]
