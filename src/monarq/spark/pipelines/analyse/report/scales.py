"""Axes: where the ticks stand, what they say, and where a value lies between both ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from monarq.clock import DAY, SECOND
from monarq.spark.pipelines.analyse import wording
from monarq.spark.pipelines.analyse.figures import Window

_MINUTE, _HOUR = 60 * SECOND, 3_600 * SECOND

_TIME_STEPS = (
    *(SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 15 * SECOND, 30 * SECOND),
    *(_MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY, 182 * DAY, 364 * DAY),
)

#: Steps of durations: 50 ms, 2 s and 15 min, not 0.025 h.
_DURATION_STEPS = (
    *(mantissa * 10.0**power for power in range(-6, 1) for mantissa in (1, 2, 5)),
    *(10, 15, 30, 60, 120, 300, 600, 900, 1_800),
    *(3_600, 7_200, 10_800, 21_600, 43_200),
    *(86_400.0 * days for days in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
)

#: On a logarithmic axis.
_DURATION_DECADES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3_600, 36_000, 864_000)

#: From this ratio of the largest to the smallest value on, a linear axis shows only the largest.
_LOG_FROM = 40.0


@dataclass(frozen=True)
class Scale:
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    is_log: bool = False

    def place(self, value: float) -> float:
        """0 at the lower end, 1 at the upper."""
        if self.is_log:
            value, low, high = (
                math.log(each) for each in (max(value, self.low), self.low, self.high)
            )
        else:
            low, high = self.low, self.high
        return min(max((value - low) / (high - low), 0.0), 1.0)


def counting(highest: float, in_words: Callable[[float], str] = wording.short_count) -> Scale:
    """From 0, for numbers and rates."""
    step = _nice_step(highest)
    return _from_zero(highest, step, in_words)


def lasting(lowest: float, highest: float) -> Scale:
    """For durations; logarithmic if they differ much. `lowest` is the least that is not 0."""
    if lowest > 0 and highest / lowest >= _LOG_FROM:
        return _decades(lowest, highest)
    step = next((step for step in _DURATION_STEPS if highest <= 5 * step), _DURATION_STEPS[-1] * 10)
    return _from_zero(highest, step, _tick_duration)


def _decades(lowest: float, highest: float) -> Scale:
    low = max((each for each in _DURATION_DECADES if each <= lowest), default=1e-6)
    high = min((each for each in _DURATION_DECADES if each >= highest), default=highest)
    ticks = [each for each in _DURATION_DECADES if low <= each <= high]
    while len(ticks) > 6:
        ticks = ticks[::2]
    return Scale(low, high, tuple((each, _tick_duration(each)) for each in ticks), is_log=True)


def _from_zero(highest: float, step: float, in_words: Callable[[float], str]) -> Scale:
    number = max(math.ceil(highest / step - 1e-9), 1)
    ticks = tuple((step * place, in_words(step * place)) for place in range(number + 1))
    return Scale(0.0, step * number, ticks)


def _nice_step(highest: float) -> float:
    """1, 2 or 5 times a power of ten, such that three to five steps are enough."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest / 5))
    return next(power * each for each in (1, 2, 5, 10) if highest <= 5 * power * each * (1 + 1e-9))


def _tick_duration(seconds: float) -> str:
    for limit, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")):
        if seconds >= limit * (1 - 1e-9):
            return f"{round(seconds / limit, 3):g} {unit}"
    return "0" if seconds == 0 else f"{round(seconds * 1e6, 3):g} µs"


def times(window: Window, most: int = 6) -> list[tuple[float, str]]:
    """Round times of UTC and where they lie in the window, from 0 to 1."""
    length = window.end - window.start
    step = next((each for each in _TIME_STEPS if length <= most * each), _TIME_STEPS[-1] * 10)
    first = -(-window.start // step) * step
    return [
        ((at - window.start) / length, _time_label(at, step))
        for at in range(first, window.end + 1, step)
    ]


def _time_label(at: int, step: int) -> str:
    moment = datetime.fromtimestamp(at // SECOND, UTC)
    if step >= 28 * DAY:
        return f"{moment:%b %Y}"
    if step >= DAY or at % DAY == 0:
        return f"{moment.day} {moment:%b}"
    return f"{moment:%H:%M:%S}" if step < _MINUTE else f"{moment:%H:%M}"
