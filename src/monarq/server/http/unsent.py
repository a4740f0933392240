"""Answers that clients are slow to take, and the memory that they share.

When the unsent answers of a process need more than `unsent_bytes`, the address that holds the most
loses a connection: the one whose answer has stalled for the longest, weighed by its size. Readers
who do not read therefore cut themselves off before the process runs out of memory.

Over TLS uvloop does not tell how much of an answer is unsent: such answers are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

_STEP = 64 << 10
"""An answer of which less was sent has not moved."""


class Taker(Protocol):
    """A connection whose client does not take its answer as fast as it is made."""

    address: str

    def unsent_bytes(self) -> int: ...

    def cut(self) -> None:
        """Close the connection soon: it may be in the middle of a write."""


class _Answer:
    __slots__ = ("moved_at", "size")

    def __init__(self, size: int, now: float) -> None:
        self.size = size
        """Unsent bytes when that was last looked at."""
        self.moved_at = now


class Unsent:
    """All answers of a process that are partly unsent."""

    def __init__(self, limit: int, time: Callable[[], float]) -> None:
        self._limit = limit
        self._time = time
        self._answers: dict[Taker, _Answer] = {}
        self.held = 0
        """At most so many bytes: what was sent since an answer was last looked at counts too."""

    def add(self, taker: Taker) -> None:
        """Count an answer; cut connections, maybe this one, if there are too many bytes."""
        self.remove(taker)
        now = self._time()
        answer = self._answers[taker] = _Answer(taker.unsent_bytes(), now)
        self.held += answer.size
        if self.held > self._limit:
            self._make_room(now)

    def remove(self, taker: Taker) -> None:
        answer = self._answers.pop(taker, None)
        if answer is not None:
            self.held -= answer.size

    def _make_room(self, now: float) -> None:
        by_address: Counter[str] = Counter()
        for taker, answer in self._answers.items():
            size = taker.unsent_bytes()
            if size <= answer.size - _STEP:
                answer.moved_at = now
            self.held += size - answer.size
            answer.size = size
            by_address[taker.address] += size
        while self.held > self._limit:
            [(address, _)] = by_address.most_common(1)
            victim = max(
                (taker for taker in self._answers if taker.address == address),
                key=lambda taker: self._weight(taker, now),
            )
            by_address[address] -= self._answers[victim].size
            self.remove(victim)
            victim.cut()

    def _weight(self, taker: Taker, now: float) -> tuple[float, int]:
        answer = self._answers[taker]
        return answer.size * (now - answer.moved_at), answer.size
