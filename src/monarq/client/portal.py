"""A loop in a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from monarq.errors import StoreUnavailableError

T = TypeVar("T")


class Portal:
    """Runs coroutines for threads that wait for them. Ctrl-C in a waiting thread cancels what it
    waits for, and returns when that has ended, so that nothing goes on behind its back."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="monarq-client", daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        return self._thread.is_alive()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if not self.is_open:
            coroutine.close()
            raise StoreUnavailableError("the client is closed")
        future = self.start(coroutine)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
                self._settle()
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        if self.is_open:
            self._settle()
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

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
