"""The broker's own timed work, step by step: expire leases, promote what is due, bury, retain.

A timer is set to the next due time. A step is bounded, there are never two at once, and other
calls go in between. What a step does is the store's business.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from monarq.broker.alarms import Alarm, Alarms
from monarq.broker.measures import Measures
from monarq.clock import SECOND
from monarq.errors import StoreUnavailableError
from monarq.model import LifecycleReport
from monarq.store.contract import Store

log = logging.getLogger(__name__)

_AGAIN = (0.05, 1.0)
"""Seconds until the next step if the last said that there is work, and did none: somebody else
is at it, or his clock is not ours."""


class Lifecycle:
    def __init__(
        self,
        alarms: Alarms,
        store: Callable[[], Store],
        stirred: Callable[[str, str], None],
        measures: Measures,
        on_unavailable: Callable[[StoreUnavailableError], None],
        clock: Callable[[], int],
        *,
        limit: int,
        max_seconds: float,
    ) -> None:
        self._alarms = alarms
        self._store = store
        self._stirred = stirred
        self._measures = measures
        self._on_unavailable = on_unavailable
        self._clock = clock
        self._limit = limit
        self._longest = round(max_seconds * SECOND)
        self._alarm: Alarm | None = None
        self._task: asyncio.Task[None] | None = None
        self._idle_seconds = 0.0
        self._closed = False
        self._expected = 0
        """The earliest time that was hinted at since the last step began."""

    def start(self) -> None:
        self._set(self._alarms.now())

    def hint(self, moment: int) -> None:
        """There will be something to do then: a lease ends, or an item falls due."""
        if self._task is not None:
            self._expected = min(self._expected or moment, moment)
        elif self._alarm is not None:
            when = self._alarms.at(moment)
            if when < self._alarm.when:
                self._set(when)

    def hurry(self) -> None:
        """There may be something to do now."""
        self.hint(self._clock())

    @property
    def running(self) -> bool:
        return self._task is not None

    async def close(self) -> None:
        """Waits for a step under way; the store bounds it."""
        self._closed = True
        self._alarms.cancel(self._alarm)
        if self._task is not None:
            await asyncio.wait([self._task])

    def _set(self, when: int) -> None:
        self._alarms.cancel(self._alarm)
        self._alarm = None if self._closed else self._alarms.set(when, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._expected = 0
        self._task = asyncio.get_running_loop().create_task(self._step())

    async def _step(self) -> None:
        pause = _AGAIN[1]
        try:
            pause = await self._take_step()
        except StoreUnavailableError as error:
            self._measures.lifecycle_failures += 1
            self._on_unavailable(error)
        except Exception:
            # It must not end here: leases would no longer expire for those who wait.
            self._measures.lifecycle_failures += 1
            log.exception("a step of the lifecycle failed")
        finally:
            self._task = None
            when = self._alarms.now() + round(pause * SECOND)
            if self._expected:
                when = min(when, self._alarms.at(self._expected))
            self._set(when)

    async def _take_step(self) -> float:
        """Seconds until the next one."""
        started = time.perf_counter()
        report = await self._store().lifecycle(limit=self._limit)
        self._measures.lifecycle_seconds.observe(time.perf_counter() - started)
        did = self._note(report)
        for queue in report.wake:
            self._stirred(queue, "lifecycle")
        left = self._longest
        if report.next_at is not None:
            left = min(left, report.next_at - self._clock())
        if left > 0 or did:
            self._idle_seconds = 0.0
            return max(left, 0) / SECOND
        first, last = _AGAIN
        self._idle_seconds = min(max(first, 2 * self._idle_seconds), last)
        return self._idle_seconds

    def _note(self, report: LifecycleReport) -> int:
        measures = self._measures
        measures.lifecycle_steps += 1
        done = measures.lifecycle_done
        done["expired"] += report.expired
        done["promoted"] += report.promoted
        done["buried"] += report.buried
        done["removed"] += report.removed
        return report.expired + report.promoted + report.buried + report.removed + report.made
