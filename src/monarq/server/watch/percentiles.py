"""Percentiles of values that count for several each."""

from __future__ import annotations

from collections.abc import Sequence

from monarq.broker.measures import Histogram
from monarq.clock import SECOND
from monarq.model import Latency

PARTS = (0.5, 0.95, 0.99)


def of_latencies(found: Sequence[Latency]) -> tuple[float, float, float] | None:
    """The 50th, 95th and 99th, in seconds; None of nothing."""
    if not found:
        return None
    ordered = sorted((one.microseconds, one.messages) for one in found)
    total = sum(messages for _, messages in ordered)
    answers: list[float] = []
    seen = 0
    rows = iter(ordered)
    value = 0
    for part in PARTS:
        while seen < part * total:
            value, messages = next(rows)
            seen += messages
        answers.append(value / SECOND)
    return answers[0], answers[1], answers[2]


def of_histogram(histogram: Histogram) -> tuple[float, float, float] | None:
    """The bounds below which so much lies; of what is above the last bound, that bound."""
    if not histogram.total:
        return None
    answers = [_bound_of(histogram, part) for part in PARTS]
    return answers[0], answers[1], answers[2]


def _bound_of(histogram: Histogram, part: float) -> float:
    seen = 0
    for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
        seen += count
        if seen >= part * histogram.total:
            return bound
    return histogram.bounds[-1]
