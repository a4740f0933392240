"""Timers by the broker's clock: one timer of the loop for all of them.

With real time they run on time that never jumps; with a clock that a test moves, they go off
when it is moved. Coarse by design: meant for dozens of alarms, not for one a call.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from heapq import heappop, heappush

from monarq.clock import SECOND, Clock, ManualClock

log = logging.getLogger(__name__)


class Alarm:
    __slots__ = ("callback", "when")

    def __init__(self, when: int, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback: Callable[[], None] | None = callback


class Alarms:
    """`when` is microseconds by `now()`, which is not the time of day; `at` translates."""

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop
        self._heap: list[tuple[int, int, Alarm]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._manual = isinstance(clock, ManualClock)
        self._unwatch = clock.watch(self._moved) if isinstance(clock, ManualClock) else None
        self._closed = False

    def now(self) -> int:
        return self._clock.now() if self._manual else time.monotonic_ns() // 1_000

    def at(self, moment: int) -> int:
        """A point in time as the alarms count."""
        return self.now() + moment - self._clock.now()

    def set(self, when: int, callback: Callable[[], None]) -> Alarm:
        alarm = Alarm(when, callback)
        self._count += 1
        heappush(self._heap, (when, self._count, alarm))
        self._arm()
        return alarm

    def after(self, seconds: float, callback: Callable[[], None]) -> Alarm:
        return self.set(self.now() + round(seconds * SECOND), callback)

    def cancel(self, alarm: Alarm | None) -> None:
        if alarm is not None:
            alarm.callback = None

    async def sleep(self, seconds: float) -> None:
        done = self._loop.create_future()
        alarm = self.after(seconds, lambda: None if done.done() else done.set_result(None))
        try:
            await done
        finally:
            self.cancel(alarm)

    def close(self) -> None:
        self._closed = True
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    def _moved(self) -> None:
        self._loop.call_soon(self._ring)

    def _arm(self) -> None:
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heappop(heap)
        if self._closed or not heap:
            return
        when = heap[0][0]
        if self._manual:
            if when <= self.now():
                self._loop.call_soon(self._ring)
            return
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_later(max(0, when - self.now()) / SECOND, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._ring()

    def _ring(self) -> None:
        heap = self._heap
        now = self.now()
        while heap and heap[0][0] <= now:
            callback = heappop(heap)[2].callback
            if callback is not None:
                try:
                    callback()
                except Exception:
                    log.exception("an alarm failed")
        self._arm()
