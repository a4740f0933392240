"""When waiting pops give up: by slices of time, so that none needs a timer of its own."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Generic, TypeVar

from monarq.broker.alarms import Alarm, Alarms

T = TypeVar("T")

SLICE = 10_000
"""Microseconds; nobody gives up earlier than asked, or later by more than this."""


class Timeouts(Generic[T]):
    """Tells `expired` of each whose time has come, unless it was taken out before."""

    def __init__(self, alarms: Alarms, expired: Callable[[T], None]) -> None:
        self._alarms = alarms
        self._expired = expired
        self._slices: dict[int, dict[T, None]] = {}
        self._order: list[int] = []
        self._alarm: Alarm | None = None

    def add(self, waiting: T, deadline: int) -> int:
        """The slice it is in, which takes it out again."""
        number = -(-deadline // SLICE)
        members = self._slices.get(number)
        if members is not None:
            members[waiting] = None
            return number
        self._slices[number] = {waiting: None}
        heappush(self._order, number)
        self._arm()
        return number

    def remove(self, waiting: T, number: int) -> None:
        members = self._slices.get(number)
        if members is not None:
            members.pop(waiting, None)

    def _arm(self) -> None:
        """For the first slice with somebody in it: most are answered long before their time, and
        a ring for each slice they were in would be most of what an idle broker does."""
        order = self._order
        while order and not self._slices[order[0]]:
            del self._slices[heappop(order)]
        if not order:
            return
        when = order[0] * SLICE
        if self._alarm is None or when < self._alarm.when:
            self._alarms.cancel(self._alarm)
            self._alarm = self._alarms.set(when, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self._alarms.now()
        while self._order and self._order[0] * SLICE <= now:
            for waiting in self._slices.pop(heappop(self._order)):
                self._expired(waiting)
        self._arm()
