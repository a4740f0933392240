"""The one thread that a connection belongs to: how work gets there, and what came of it back.

A pool of one thread does the same, with futures and locks of its own on the way, which took half
the time of a short call.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
_Work = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class WorkThread:
    """Ends when it is stopped, or nobody has it any more."""

    def __init__(self, name: str) -> None:
        self._works: SimpleQueue[_Work | None] = SimpleQueue()
        weakref.finalize(self, self._works.put, None)
        # A daemon: what nobody waits for any more keeps no process from ending.
        threading.Thread(target=_work_off, args=(self._works,), name=name, daemon=True).start()

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Works are done in the order in which they come. Whoever gives one up before it has
        begun takes it back; later it is done all the same."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._works.put((loop, future, work))
        return future

    def stop(self) -> None:
        """Once all that came before is done."""
        self._works.put(None)


def _work_off(works: SimpleQueue[_Work | None]) -> None:
    while _do_next(works):
        pass


def _do_next(works: SimpleQueue[_Work | None]) -> bool:
    """False: that was all. A function of its own, so that nothing of a work that is done is kept
    until the next one comes."""
    given = works.get()
    if given is None:
        return False
    loop, future, work = given
    if not future.cancelled():
        try:
            _answer_later(loop, future, work(), None)
        except BaseException as error:  # noqa: BLE001 (it is raised where the answer is awaited)
            _answer_later(loop, future, None, error)
            # The future has the error, and the error this frame.
            del given, future
    return True


def _answer_later(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
    result: Any,
    error: BaseException | None,
) -> None:
    # A loop that is closed has nobody who waits.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(_answer, future, result, error)


def _answer(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
