"""Time, as points in microseconds since the Unix epoch, UTC.

Whatever needs the time asks a clock, so that tests can move it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

MILLISECOND = 1_000
SECOND = 1_000_000
DAY = 86_400 * SECOND


class Clock(Protocol):
    def now(self) -> int:
        """The current time in microseconds since the epoch."""

    @property
    def shared(self) -> bool:
        """Whether this is real time, so that a store may ask its own server's clock.

        Brokers on several machines must agree on when a lease ends: with real
        time, PostgreSQL's clock decides, not theirs.
        """


class SystemClock:
    """Real time."""

    shared = True

    def now(self) -> int:
        return time.time_ns() // 1_000


class ManualClock:
    """Time that stands still until a test moves it."""

    shared = False

    def __init__(self, start: int = 1_700_000_000 * SECOND) -> None:
        self._now = start
        self._watchers: list[Callable[[], None]] = []

    def now(self) -> int:
        return self._now

    def advance(self, seconds: float) -> int:
        """Move on (or, with a negative value, back) and return the new time."""
        self._now += round(seconds * SECOND)
        for watcher in list(self._watchers):
            watcher()
        return self._now

    def watch(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Call `watcher` whenever time is moved; what is returned ends that."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)


def micros(seconds: float) -> int:
    """A duration in seconds as microseconds."""
    return round(seconds * SECOND)
