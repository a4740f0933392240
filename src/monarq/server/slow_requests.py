"""The latest requests that took long, by route: no name, URL or header is kept."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from monarq.clock import Clock
from monarq.times import iso
from monarq.wire.dashboard import SlowCall

if TYPE_CHECKING:
    from monarq.server.routing import Route

MOST = 50


class SlowRequests:
    """One a process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: deque[SlowCall] = deque(maxlen=MOST)

    def note(self, route: Route | None, status: int, seconds: float) -> None:
        what = f"{route.method} {route.path}" if route is not None else "no route"
        at = iso(self._clock.now())
        self._found.append(SlowCall(what=what, status=status, seconds=round(seconds, 3), at=at))

    def newest(self) -> list[SlowCall]:
        return list(reversed(self._found))
