"""Threads for functions of which some may never return.

A thread cannot be ended. So a call never waits for one that is busy, and none keeps the process
alive: those of `concurrent.futures` do both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads(Executor):
    """As many as are busy at once, and kept for the calls that follow. How many calls there are
    at a time is for the caller to bound."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._is_shut_down = False

    @property
    def busy(self) -> int:
        """How many have not returned from their call."""
        with self._lock:
            return self._threads - self._idle

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                self._rest()
                return
            try:
                value = function(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - it is whoever waits that it is for
                self._rest()
                future.set_exception(error)
            else:
                self._rest()
                future.set_result(value)

        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("these threads were shut down")
            if self._idle:
                self._idle -= 1
            else:
                number = self._threads
                threading.Thread(
                    target=self._work, name=f"{self._name}_{number}", daemon=True
                ).start()
                self._threads += 1
            self._calls.put(call)
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """Each ends when it has returned from its call; nobody waits for that."""
        with self._lock:
            if not self._is_shut_down:
                self._is_shut_down = True
                for _ in range(self._threads):
                    self._calls.put(None)

    def _rest(self) -> None:
        # Before the call is answered: whoever hears of it may have the next one ready.
        with self._lock:
            self._idle += 1

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            # It holds what it was called with, and its result.
            del call
