"""Slots for the pieces of exports: how many are made at the same time, and whose turn it is.

A stream takes a slot for each piece. No owner holds all slots, so one reader cannot hold up the
others; owners that wait take turns, and each owner's streams are served in the order they came.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ExportSlots:
    def __init__(self, total: int = 3, each: int = 2) -> None:
        """`each` is the most that one owner holds."""
        self._free = total
        self._each = each
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By owner; the owner whose turn is next stands first."""

    @asynccontextmanager
    async def slot(self, owner: str) -> AsyncIterator[None]:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(waiting)
        self._grant()
        try:
            await waiting
        except asyncio.CancelledError:
            if not waiting.cancelled():
                self._release(owner)
            raise
        try:
            yield
        finally:
            self._release(owner)

    def _release(self, owner: str) -> None:
        self._free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        self._grant()

    def _grant(self) -> None:
        while self._free:
            owner = next((one for one in self._waiting if self._held[one] < self._each), None)
            if owner is None:
                return
            waiting = self._waiting.pop(owner)
            future = waiting.popleft()
            if waiting:
                # To the end of the line.
                self._waiting[owner] = waiting
            if not future.done():
                self._free -= 1
                self._held[owner] += 1
                future.set_result(None)
