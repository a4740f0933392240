"""How much of what could be delivered one answer has room for, in bytes of stored payloads.

Knows nothing of queues: whoever pops asks it for each message, in order of delivery.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence


class Room:
    """Of one answer. Its first message always has room; once one had none, nothing has."""

    __slots__ = ("_is_empty", "_left", "is_full")

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._is_empty = True
        self.is_full = False

    def take(self, offsets: Sequence[int], start: int, end: int) -> int:
        """Of payloads that lie between these offsets one after the other, from `start` on: before
        which there is room no more, at most `end`."""
        if self.is_full:
            return start
        size = offsets[end] - offsets[start]
        if size > self._left:
            self.is_full = True
            end = bisect_right(offsets, offsets[start] + self._left, start, end + 1) - 1
            if self._is_empty:
                end = max(end, start + 1)
            size = offsets[end] - offsets[start]
        self._left -= size
        self._is_empty = self._is_empty and end == start
        return end

    def has(self, size: int) -> bool:
        """Whether there is room for one more payload; it is taken then."""
        return self.take((0, size), 0, 1) == 1
