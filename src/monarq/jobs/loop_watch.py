"""Watches the event loop from a thread: a task that blocks it blocks all that could say so."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

#: How often the loop says that it runs, and the thread looks, in each `seconds`.
_LOOKS = 10

OnBlocked = Callable[[float, "asyncio.Task[Any] | None", str], None]


class LoopWatch:
    """Calls `on_blocked` from a thread when the loop has not run for `seconds`, once each time:
    with how long that is, the task of the loop that runs, and the loop's stack."""

    def __init__(self, seconds: float, on_blocked: OnBlocked) -> None:
        self._seconds = seconds
        self._pause = seconds / _LOOKS
        self._on_blocked = on_blocked
        self._ran_at = 0.0

    async def keep(self) -> None:
        """Watch until cancelled."""
        ended = threading.Event()
        self._ran_at = time.monotonic()
        arguments = (asyncio.get_running_loop(), threading.get_ident(), ended)
        threading.Thread(target=self._watch, args=arguments, daemon=True).start()
        try:
            while True:
                self._ran_at = time.monotonic()
                await asyncio.sleep(self._pause)
        finally:
            ended.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int, ended: threading.Event) -> None:
        told_of = 0.0
        looked_at = time.monotonic()
        while not ended.wait(self._pause):
            now = time.monotonic()
            # If the whole process stood still, the loop has not had a chance yet.
            was_frozen = now - looked_at > 3 * self._pause
            looked_at, ran_at = now, self._ran_at
            if now - ran_at > self._seconds and not was_frozen and ran_at != told_of:
                told_of = ran_at
                frame = sys._current_frames().get(thread)
                stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
                self._on_blocked(now - ran_at, asyncio.current_task(loop), stack)
