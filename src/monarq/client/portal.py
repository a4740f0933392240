"""A loop in a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from monarq.errors import ClientClosedError

T = TypeVar("T")


class Portal:
    """Runs coroutines for threads that wait for them. Ctrl-C in a waiting thread cancels what it
    waits for, and returns when that has ended, so that nothing goes on behind its back. Who still
    waits when it is closed is told so."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="monarq-client", daemon=True)
        self._thread.start()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def is_open(self) -> bool:
        # The thread of a process that was forked is not alive.
        return not self._closed and self._thread.is_alive()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = self.start(coroutine)
        try:
            return future.result()
        except CancelledError:
            if self._closed:
                raise ClientClosedError("the client was closed meanwhile") from None
            raise
        except BaseException:
            if not future.done():
                future.cancel()
                self._settle()
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        if self.is_open:
            with self._lock:
                if not self._closed:
                    return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        coroutine.close()
        raise ClientClosedError("the client is closed")

    def close(self) -> None:
        if not self.is_open:
            return
        with self._lock:
            # Nothing is started from here on, so that nobody waits for a loop that has ended.
            first, self._closed = not self._closed, True
        if first:
            asyncio.run_coroutine_threadsafe(self._end_tasks(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _settle(self) -> None:
        """Wait until what was cancelled has ended."""
        self.start(self._cancelled_tasks()).result()

    @staticmethod
    async def _cancelled_tasks() -> None:
        pending = [task for task in asyncio.all_tasks() if task.cancelling()]
        if pending:
            await asyncio.wait(pending, timeout=5)

    @classmethod
    async def _end_tasks(cls) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await cls._cancelled_tasks()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
