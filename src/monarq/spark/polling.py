"""How often an idle stream looks for something new.

Spark asks some 80 times a second. Looking costs the store something, the more the larger the
queue, so between two looks that find nothing there is at least the interval, and several times
what a look takes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

#: A stream spends at most one part in so many of its idle time with looking.
_SHARE = 5

#: How long counters alone are trusted, in seconds.
_THOROUGHLY_EVERY = 10.0


class Pace:
    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._next_at = 0.0
        self._thorough_at = 0.0

    def wait(self) -> None:
        """Until it is time to look again."""
        time.sleep(max(0.0, self._next_at - time.monotonic()))

    @contextmanager
    def looking(self, *, thoroughly: bool = False) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            now = time.monotonic()
            self._next_at = now + max(self._interval, (now - began) * _SHARE)
            if thoroughly:
                self._thorough_at = now

    def is_look_due(self) -> bool:
        """Whether it is long since one looked thoroughly."""
        return time.monotonic() > self._thorough_at + _THOROUGHLY_EVERY

    def hurry(self) -> None:
        """Something was found: look again as soon as one is asked."""
        self._next_at = 0.0
