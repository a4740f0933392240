"""Inboxes: calls gather here and leave for the store together.

An inbox is drained in the next turn of the loop if a connection is free, so that a lone call
leaves at once and all that one turn brought leave together, with those who come back in the turns
after it; while all are busy calls gather, and leave when one comes back. Bounded: past its limits
an inbox refuses. It decides nothing about queues, and knows the store only by one call.

A call is the future that its caller waits for. No task, no timer and no copy is made for it.
"""

from __future__ import annotations

import abc
import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct

from monarq.broker.measures import CallMeasure, Measures
from monarq.errors import MonarqError, OverloadedError, StoreUnavailableError, drop_frames

log = logging.getLogger(__name__)


class Call(asyncio.Future[Any]):
    """One caller's request, and the answer to come. `count` is how many messages it is about,
    `size` how many bytes it holds."""

    __slots__ = ("count", "request", "size")
    request: Any
    count: int
    size: int


C = TypeVar("C", bound=Call)


class Limits(Struct, frozen=True, kw_only=True):
    concurrency: int
    """Calls to the store at the same time."""
    batch_max: int
    """Messages in one of them; a larger request goes alone."""
    batch_max_bytes: int = 2**62
    calls_max: int
    """Calls that may wait here."""
    bytes_max: int = 2**62
    wait_seconds: float = 0.0
    """How long a call waits for company while others are under way."""
    timeout_seconds: float
    """After which a call to the store is given up."""


class Trip(Generic[C]):
    """One call to the store under way."""

    __slots__ = ("abandoned", "calls", "mark", "task")

    def __init__(self, calls: list[C], mark: str, task: asyncio.Task[Any] | None) -> None:
        self.calls = calls
        self.mark = mark
        self.task = task
        self.abandoned = False


def fail(call: asyncio.Future[Any], error: BaseException) -> None:
    """Answer with an error. Whoever went away meanwhile is not missed by asyncio's log."""
    if call.done():
        drop_frames(error)
    else:
        call.set_exception(error)
        call.exception()


class Inbox(abc.ABC, Generic[C]):
    """What all kinds share; a kind says what it asks of the store and what it does with the
    answers."""

    def __init__(
        self,
        limits: Limits,
        measure: CallMeasure,
        measures: Measures,
        on_unavailable: Callable[[StoreUnavailableError], None],
    ) -> None:
        self.limits = limits
        self._loop = asyncio.get_running_loop()
        self._measure = measure
        self._measures = measures
        self._on_unavailable = on_unavailable
        self._queue: deque[C] = deque()
        self._count = 0
        self._bytes = 0
        self._in_flight = 0
        self._scheduled = False
        self._scheduled_at = 0.0
        self._seen = 0
        """Messages that waited when that was last looked at."""
        self._left = 0
        """Messages in the last batch."""
        self._held = False
        self._timer: asyncio.TimerHandle | None = None
        self._halves: deque[list[C]] = deque()
        """Of batches that failed."""
        self._halving: asyncio.Task[Any] | None = None
        self._given_up: set[asyncio.Task[Any]] = set()
        """Those that no longer take a slot."""
        self._tasks: dict[asyncio.Task[None], list[C]] = {}
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()

    # --- what a kind says ----------------------------------------------------------------

    @abc.abstractmethod
    async def _ask(self, trip: Trip[C]) -> Sequence[Any]:
        """Make the one call to the store: an answer, or its error, for each call."""

    def _settle(self, calls: list[C], answers: Sequence[Any]) -> None:
        """Hand out the answers, of which an error fails its call."""
        measure = self._measure
        messages = 0
        for call, answer in zip(calls, answers, strict=True):
            if isinstance(answer, MonarqError):
                measure.errors += 1
                fail(call, answer)
            else:
                messages += call.count
                if not call.done():
                    call.set_result(answer)
        measure.messages += messages
        measure.batch_messages.observe(messages)
        self._settle_late(calls, answers)

    def _unavailable(self, trip: Trip[C], error: StoreUnavailableError) -> None:
        """The store failed, and nobody knows whether it has carried the calls out."""
        self._measure.errors += len(trip.calls)
        for call in trip.calls:
            fail(call, error)

    def _settle_late(self, calls: list[C], answers: Sequence[Any]) -> None:
        """What answers mean for others than the callers, who may have been given up before."""

    # --- taking calls ----------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def in_flight(self) -> int:
        return self._in_flight

    @property
    def is_busy(self) -> bool:
        return bool(self._queue or self._halves or self._in_flight)

    @property
    def is_full(self) -> bool:
        return len(self) >= self.limits.calls_max or self._bytes >= self.limits.bytes_max

    def add(self, call: C) -> None:
        queue, limits = self._queue, self.limits
        if len(self) >= limits.calls_max or self._bytes >= limits.bytes_max:
            self._measures.overloaded += 1
            fail(call, OverloadedError("too many calls are waiting: try again in a moment"))
            return
        self._measure.calls += 1
        queue.append(call)
        self._count += call.count
        self._bytes += call.size
        if self._scheduled or self._in_flight >= limits.concurrency:
            return
        # While it waits for company it leaves by the timer, unless this was the last to come.
        if self._timer is None or self._is_batch_full:
            self.consider()

    def consider(self) -> None:
        """See to it that what waits leaves when it may."""
        can_halve = self._halves and self._halving is None
        if self._scheduled or self._held or not (self._queue or can_halve):
            return
        if self._in_flight >= self.limits.concurrency:
            return
        if self._in_flight and self.limits.wait_seconds and not self._is_batch_full:
            if self._timer is None:
                self._timer = self._loop.call_later(self.limits.wait_seconds, self._time_is_up)
            return
        self._scheduled_at = self._loop.time()
        self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._seen = self._count
        self._loop.call_soon(self._drain)

    def hold(self, held: bool) -> None:
        """While held, nothing leaves."""
        self._held = held
        self.consider()

    @property
    def _is_batch_full(self) -> bool:
        limits = self.limits
        return self._count >= limits.batch_max or self._bytes >= limits.batch_max_bytes

    @property
    def _is_gathering(self) -> bool:
        """Whether what waits is still becoming more: callers who were answered together come back
        within a few turns of the loop, and cost less in one batch than in two."""
        if self._in_flight or not self._seen < self._count < self._left:
            return False
        return self._loop.time() - self._scheduled_at < self.limits.wait_seconds

    def _time_is_up(self) -> None:
        self._timer = None
        if not self._scheduled:
            self._drain()

    # --- sending -------------------------------------------------------------------------

    def _drain(self) -> None:
        self._scheduled = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._held:
            return
        if self._is_gathering:
            self._schedule()
            return
        if self._halves and self._halving is None and self._in_flight < self.limits.concurrency:
            # One after the other, so that they are carried out in their order.
            half = self._halves.popleft()
            self._halving = self._send(self._run(half), half)
        while self._queue and self._in_flight < self.limits.concurrency:
            before = self._count
            calls = self._take()
            self._left = before - self._count
            if calls:
                self._send(self._run(calls), calls)
            if self.limits.wait_seconds and not self._is_batch_full:
                break
        self.consider()

    def _take(self) -> list[C]:
        """The next ones to go together, without those whose callers went away."""
        queue, limits = self._queue, self.limits
        calls: list[C] = []
        if self._count <= limits.batch_max and self._bytes <= limits.batch_max_bytes:
            calls += [call for call in queue if not call.done()]
            queue.clear()
            self._count = self._bytes = 0
            return calls
        count = size = 0
        while queue:
            call = queue[0]
            if not call.done():
                count += call.count
                size += call.size
                if calls and (count > limits.batch_max or size > limits.batch_max_bytes):
                    break
                calls.append(call)
            queue.popleft()
            self._count -= call.count
            self._bytes -= call.size
        return calls

    def _send(self, work: Coroutine[Any, Any, None], calls: list[C]) -> asyncio.Task[None]:
        self._in_flight += 1
        self._measure.in_flight += 1
        self._idle.clear()
        task = self._loop.create_task(work)
        self._tasks[task] = calls
        task.add_done_callback(self._came_back)
        return task

    def _came_back(self, task: asyncio.Task[None]) -> None:
        calls = self._tasks.pop(task)
        if task in self._given_up:
            self._given_up.discard(task)
        else:
            self._free_slot(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # Whatever went wrong, nobody is left waiting for an answer that will not come.
            log.error("a batch was lost", exc_info=error)
            for call in calls:
                fail(call, error)
        if (self._queue or self._halves) and not self._scheduled:
            # Those who have just been answered may be on their way back.
            self._scheduled_at, self._seen = self._loop.time(), 0
            self._drain()

    def _free_slot(self, task: asyncio.Task[Any]) -> None:
        if task is self._halving:
            self._halving = None
        self._in_flight -= 1
        self._measure.in_flight -= 1
        if not self.is_busy:
            self._idle.set()

    def _free_early(self) -> None:
        """Let what waits for the call that is back leave before its answers are handed out, which
        takes a while if they are many."""
        task = asyncio.current_task()
        assert task is not None
        self._given_up.add(task)
        self._free_slot(task)
        if self._queue and not self._scheduled:
            self._drain()

    async def _run(self, calls: list[C]) -> None:
        trip = Trip(calls, self._new_mark(), asyncio.current_task())
        started = time.perf_counter()
        timer = self._loop.call_later(self.limits.timeout_seconds, self._abandon, trip)
        try:
            answers = await self._ask(trip)
        except StoreUnavailableError as error:
            self._on_unavailable(error)
            if not trip.abandoned:
                self._unavailable(trip, error)
            return
        except Exception as error:
            if trip.abandoned:
                log.exception("a call that was given up failed")
            elif len(calls) == 1:
                self._fail_alone(calls[0], error)
            else:
                log.warning("a batch of %d calls failed (%r): halving it", len(calls), error)
                half = len(calls) // 2
                self._halves.extendleft((calls[half:], calls[:half]))
            return
        finally:
            timer.cancel()
        self._measure.seconds.observe(time.perf_counter() - started)
        self._measure.batch_calls.observe(len(calls))
        if trip.abandoned:
            self._settle_late(calls, answers)
        else:
            self._settle(calls, answers)

    def _new_mark(self) -> str:
        return ""

    def _fail_alone(self, call: C, error: Exception) -> None:
        self._measures.guilty += 1
        self._measure.errors += 1
        if not isinstance(error, MonarqError):
            log.error("the store could not carry out a request", exc_info=error)
        fail(call, error)

    def _abandon(self, trip: Trip[C]) -> None:
        """The store does not answer. Its callers go on, and others in its place: whether the
        store can serve them is found out by whoever is told of this."""
        trip.abandoned = True
        if trip.task is not None:
            self._given_up.add(trip.task)
            self._free_slot(trip.task)
        self._measures.abandoned += 1
        seconds = self.limits.timeout_seconds
        error = StoreUnavailableError(f"the store did not answer within {seconds:g} s")
        self._on_unavailable(error)
        self._unavailable(trip, error)
        if (self._queue or self._halves) and not self._scheduled:
            self._drain()

    # --- the end ---------------------------------------------------------------------------

    async def idle(self) -> None:
        """Until nothing waits and nothing is under way."""
        while self.is_busy:
            self._idle.clear()
            await self._idle.wait()

    def refuse_all(self, error: MonarqError) -> None:
        """Answer what waits with an error."""
        while self._queue:
            fail(self._queue.popleft(), error)
        for calls in self._halves:
            for call in calls:
                fail(call, error)
        self._halves.clear()
        self._count = self._bytes = 0
        if not self._in_flight:
            self._idle.set()

    def stop(self, error: MonarqError) -> list[asyncio.Task[None]]:
        """Now, whatever is under way; the calls to the store that were cancelled."""
        self.refuse_all(error)
        for task, calls in self._tasks.items():
            task.cancel()
            for call in calls:
                fail(call, error)
        return list(self._tasks)
