"""Does jobs side by side, so many at most, with no more tasks of the loop than they need.

It knows nothing of what a job is. Jobs for which there is no room wait.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

log = logging.getLogger("monarq.worker")

T = TypeVar("T")

#: How long one hand goes on with jobs that never wait before others have their turn. A call to the
#: store takes a few turns to leave.
_TURN_SECONDS = 0.0005


class Crew(Generic[T]):
    """`give` it jobs; each is done by one of its `size` hands, with `work`.

    A hand is a task of the loop that does one job after the other. So a job that never waits costs
    no task of its own; and when one waits, another hand goes on with the next. What a job leaves
    in its context (`contextvars`) is not seen by the next one.
    """

    def __init__(
        self,
        size: int,
        work: Callable[[T], Awaitable[None]],
        on_broken: Callable[[T, BaseException], None] | None = None,
    ) -> None:
        """`on_broken` is told of each job that `work` could not handle."""
        self._size = size
        self._work = work
        self._on_broken = on_broken
        self._jobs: deque[T] = deque()
        self._context = contextvars.copy_context()
        self._hands: set[asyncio.Task[None]] = set()
        self._resting: list[asyncio.Future[None]] = []
        self._is_called = False
        """Whether a hand is on its way that has not come yet."""
        self.is_closed = False
        self._unfinished = 0
        self.begun = 0
        """How many jobs ever were."""
        self._ended = asyncio.Event()

    @property
    def room(self) -> int:
        """How many more jobs would begin at once; below zero, if some wait already."""
        return self._size - self._unfinished

    @property
    def waiting(self) -> int:
        """How many jobs have not begun."""
        return len(self._jobs)

    @property
    def unfinished(self) -> int:
        """How many jobs have not ended, or not begun."""
        return self._unfinished

    @property
    def is_idle(self) -> bool:
        return not self._unfinished

    def give(self, jobs: Iterable[T]) -> None:
        before = len(self._jobs)
        self._jobs.extend(jobs)
        self._unfinished += len(self._jobs) - before
        self._call_hand()

    def take_back(self, most: int) -> list[T]:
        """The last jobs that have not begun, and now will not; so many at most."""
        jobs = [self._jobs.pop() for _ in range(min(most, len(self._jobs)))]
        self._unfinished -= len(jobs)
        self._ended.set()
        return jobs[::-1]

    def one_ended(self) -> Coroutine[Any, Any, Any]:
        """Wait until a job ends, counted from the call."""
        self._ended.clear()
        return self._ended.wait()

    async def idle(self) -> None:
        while self._unfinished:
            await self.one_ended()

    async def close(self, seconds: float | None = None) -> None:
        """End what still runs, or leave it to itself if it does not end in time."""
        self.is_closed = True
        for hand in self._hands:
            hand.cancel()
        if self._hands:
            ended, _ = await asyncio.wait(self._hands, timeout=seconds)
            await asyncio.gather(*ended, return_exceptions=True)

    def _call_hand(self) -> None:
        if self._is_called or not self._jobs:
            return
        if self._resting:
            self._is_called = True
            self._resting.pop().set_result(None)
        elif len(self._hands) < self._size:
            self._is_called = True
            loop = asyncio.get_running_loop()
            hand = loop.create_task(self._be_hand(), context=self._context.copy())
            self._hands.add(hand)
            hand.add_done_callback(self._gone)

    def _gone(self, hand: asyncio.Task[None]) -> None:
        self._hands.discard(hand)
        self._call_hand()

    async def _be_hand(self) -> None:
        loop = asyncio.get_running_loop()
        clean = contextvars.copy_context()
        while True:
            self._is_called = False
            until = loop.time() + _TURN_SECONDS
            while self._jobs:
                job = self._jobs.popleft()
                self.begun += 1
                # Somebody has to go on with the others if this one waits.
                self._call_hand()
                await self._do(job)
                if self.is_closed or contextvars.copy_context() != clean:
                    return
                if loop.time() > until:
                    await asyncio.sleep(0)
                    until = loop.time() + _TURN_SECONDS
            rest = loop.create_future()
            self._resting.append(rest)
            await rest

    async def _do(self, job: T) -> None:
        try:
            await self._work(job)
        except asyncio.CancelledError as error:
            if self.is_closed:
                self._tell_broken(job, error)
                raise
            # The job has cancelled itself; that is no reason for its hand to go.
            hand = asyncio.current_task()
            while hand is not None and hand.uncancel():
                pass
            log.error("a job was cancelled from within")
            self._tell_broken(job, error)
        except Exception as error:
            log.exception("a job could not be handled")
            self._tell_broken(job, error)
        finally:
            self._unfinished -= 1
            self._ended.set()

    def _tell_broken(self, job: T, error: BaseException) -> None:
        try:
            if self._on_broken is not None:
                self._on_broken(job, error)
        except Exception:
            log.exception("a job that could not be handled is left as it is")
