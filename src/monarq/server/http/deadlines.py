"""One timer for the patience with all connections, instead of one for each request.

A connection is looked at when it may have run out of time. Being busy since costs nothing: the
look finds out, and names the next one.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class Watched(Protocol):
    looked_at: int
    """The tick of the next look; only for `Deadlines`. 0 while there is none."""

    def look(self, now: float) -> float:
        """Act if time has run out. Returns when to look again, or 0 for never."""


class Deadlines:
    def __init__(self, loop: asyncio.AbstractEventLoop, tick_seconds: float) -> None:
        self._loop = loop
        self._tick = tick_seconds
        self._buckets: dict[int, list[Watched]] = {}
        self._last = 0
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, watched: Watched, at: float) -> None:
        """Look at it at this time, or sooner if that was planned before."""
        tick = int(at / self._tick) + 1
        planned = watched.looked_at
        if planned and planned <= tick:
            return
        if self._timer is None:
            self._last = int(self._loop.time() / self._tick)
            self._timer = self._loop.call_later(self._tick, self._turn)
        tick = max(tick, self._last + 1)
        watched.looked_at = tick
        self._buckets.setdefault(tick, []).append(watched)

    def close(self) -> None:
        self._buckets.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _turn(self) -> None:
        now = self._loop.time()
        tick = int(now / self._tick)
        # The bucket of a tick holds what is due before that tick begins.
        for number in range(self._last + 1, tick + 1):
            self._last = number
            for watched in self._buckets.pop(number, ()):
                # Planned anew since for a sooner time, or gone.
                if watched.looked_at != number:
                    continue
                watched.looked_at = 0
                again = watched.look(now)
                if again:
                    self.watch(watched, again)
        self._timer = self._loop.call_later(self._tick, self._turn) if self._buckets else None
