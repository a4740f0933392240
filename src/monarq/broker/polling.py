"""The fallback for what nobody told us: one cheap question for all who wait.

Other processes' writes are noticed here where no notice came: SQLite is asked often, as that is
the only way, and PostgreSQL ever more rarely while nothing is found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from monarq.broker.alarms import Alarm, Alarms
from monarq.broker.measures import Measures
from monarq.broker.waiting import Waiting
from monarq.clock import SECOND
from monarq.errors import StoreUnavailableError
from monarq.store.contract import Store

_ROUND_SECONDS = 5.0
_ROUND = 8
"""Whatever the store says, so many places are looked at so often: a signal that was missed for a
reason nobody thought of costs seconds, not a message."""


class Poller:
    """Runs only while somebody waits."""

    def __init__(
        self,
        alarms: Alarms,
        waiting: Waiting,
        store: Callable[[], Store],
        measures: Measures,
        on_unavailable: Callable[[StoreUnavailableError], None],
        *,
        shortest: float,
        longest: float,
        most: int,
    ) -> None:
        """Intervals in seconds; `most` places are looked at in one go."""
        self._alarms = alarms
        self._waiting = waiting
        self._store = store
        self._measures = measures
        self._on_unavailable = on_unavailable
        self._shortest = shortest
        self._longest = longest
        self._most = most
        self._interval = shortest
        self._alarm: Alarm | None = None
        self._task: asyncio.Task[None] | None = None
        self._rounded_at = alarms.now()
        self._closed = False

    def set_interval(self, seconds: float) -> None:
        """Always the same."""
        self._shortest = self._longest = self._interval = seconds

    def wanted(self) -> None:
        """Somebody waits."""
        if self._alarm is None and self._task is None and not self._closed:
            self._alarm = self._alarms.after(self._interval, self._ring)

    def found(self) -> None:
        """A look around was worth it."""
        self._interval = self._shortest
        if self._alarm is not None:
            self._alarms.cancel(self._alarm)
            self._alarm = None
            self.wanted()

    @property
    def is_asking(self) -> bool:
        return self._task is not None

    def close(self) -> None:
        self._closed = True
        self._alarms.cancel(self._alarm)
        if self._task is not None:
            self._task.cancel()

    def _ring(self) -> None:
        self._alarm = None
        if not self._waiting.parked:
            self._interval = self._shortest
            return
        self._task = asyncio.get_running_loop().create_task(self._poll())
        self._task.add_done_callback(self._polled)

    async def _poll(self) -> None:
        try:
            self._measures.polls += 1
            changed = await self._store().changed()
        except StoreUnavailableError as error:
            self._on_unavailable(error)
            return
        now = self._alarms.now()
        if changed:
            self._waiting.look_around(self._most, "poll")
        elif now - self._rounded_at >= _ROUND_SECONDS * SECOND:
            self._rounded_at = now
            self._waiting.look_around(_ROUND, "poll")

    def _polled(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        task.result()
        self._interval = min(2 * self._interval, self._longest)
        self.wanted()
