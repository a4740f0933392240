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


class Pace:
    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._next_at = 0.0

    def wait(self) -> None:
        """Until it is time to look again."""
        time.sleep(max(0.0, self._next_at - time.monotonic()))

    @contextmanager
    def looking(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            now = time.monotonic()
            self._next_at = now + max(self._interval, (now - began) * _SHARE)

    def hurry(self) -> None:
        """Something was found: look again as soon as one is asked."""
        self._next_at = 0.0
