"""Consumes a queue: pops, calls a handler, answers, and keeps the lease alive meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeAlias, TypeVar

from monarq.client.handlers import error_text, in_thread, raise_if_cancelled
from monarq.client.received import Batch, Received
from monarq.errors import (
    ClientClosedError,
    DrainingError,
    InternalError,
    InvalidRequestError,
    LeaseError,
    MonarqError,
    OverloadedError,
    StoreUnavailableError,
)
from monarq.store.validation import check_int

log = logging.getLogger("monarq.consumer")

T = TypeVar("T")
Handler: TypeAlias = Callable[[Any], Any]
"""Takes a `Received` (or a `Batch`); may be a coroutine function."""

WAIT_SECONDS = 30.0
MOST_HANDLERS = 10_000
#: A lease is renewed when this much of it is over.
RENEW_AFTER = 1 / 3
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0

#: What passes by itself: the consumer tries again.
PASSING = (StoreUnavailableError, InternalError, OverloadedError, DrainingError)


class Consumer(Generic[T]):
    """Runs until it is stopped: `await consumer.run()`, and from elsewhere `await consumer.stop()`;
    or `async with consumer:` around the time in which it should run.

    Stopping waits for the handlers that run, answers their messages, and gives back what no
    handler has begun. Cancelling `run` cancels the handlers too and gives their messages back.
    """

    def __init__(
        self,
        pop: Callable[[float], Awaitable[Batch[T]]],
        ack_and_pop: Callable[[Batch[T]], Awaitable[tuple[MonarqError | None, Batch[T]]]],
        handler: Handler,
        *,
        concurrency: int,
        each: bool,
        lease_seconds: Callable[[], Awaitable[float]],
        ordered: Callable[[], Awaitable[bool]],
        on_error: Callable[[BaseException], None] | None,
    ) -> None:
        if not callable(handler):
            raise InvalidRequestError(f"the handler must be a function, not {handler!r}")
        check_int(concurrency, "concurrency", 1, MOST_HANDLERS)
        self._pop = pop
        self._ack_and_pop = ack_and_pop
        self._handler = handler
        self._concurrency = concurrency
        self._each = each
        self._find_lease_seconds = lease_seconds
        self._find_ordered = ordered
        self._on_error = on_error
        self._stopping = asyncio.Event()
        self._is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        self._threads: ThreadPoolExecutor | None = None
        self._task: asyncio.Task[None] | None = None
        self.handled = 0
        """Messages whose handler returned."""
        self.failed = 0
        """Messages whose handler raised."""

    async def run(self) -> None:
        if not self._is_async:
            self._threads = ThreadPoolExecutor(self._concurrency, "monarq-consumer")
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._concurrency):
                    group.create_task(self._consume())
        except* MonarqError as errors:
            raise errors.exceptions[0] from None
        finally:
            if self._threads is not None:
                self._threads.shutdown(wait=False)

    async def stop(self) -> None:
        """Returns when all is answered or given back."""
        self._stopping.set()
        await self.wait()

    async def wait(self) -> None:
        """Until it has ended."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def __aenter__(self) -> Consumer[T]:
        self._task = asyncio.create_task(self.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # --- one of the loops ------------------------------------------------------------------

    async def _consume(self) -> None:
        pause = 0.0
        batch: Batch[T] | None = None
        while not self._stopping.is_set():
            try:
                batch = batch or await self._next()
                pause = 0.0
                batch = await self._work(batch) if batch else None
            except ClientClosedError:
                raise
            except PASSING as error:
                batch = None
                pause = min(max(2 * pause, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
                log.warning("cannot consume, trying again in %.1f s: %s", pause, error)
                await self._rest(pause * random.uniform(0.5, 1.0))
        if batch:
            # It came with the answer to the last one, while the consumer was stopped.
            with contextlib.suppress(MonarqError):
                await batch.release()

    async def _next(self) -> Batch[T] | None:
        """The next batch; None if the consumer is stopped meanwhile."""
        popping = asyncio.ensure_future(self._pop(WAIT_SECONDS))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({popping, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not popping.done():
                popping.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await popping
            return None if popping.cancelled() else popping.result()
        finally:
            stopping.cancel()
            popping.cancel()

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _work(self, batch: Batch[T]) -> Batch[T] | None:
        """What came with the last answer, if anything did."""
        renewing = asyncio.create_task(self._renew(batch))
        try:
            if self._each:
                return await self._handle_each(batch)
            return await self._handle_batch(batch)
        finally:
            renewing.cancel()
            # Nothing is awaited if all is answered: whoever is cancelled here would lose what
            # came with the last answer.
            if batch.unanswered:
                with contextlib.suppress(MonarqError):
                    await asyncio.shield(batch.release())

    async def _handle_each(self, batch: Batch[T]) -> Batch[T] | None:
        # Behind a message that failed nothing of its partition may be done before it.
        blocked: set[int] = set()
        ordered = await self._find_ordered() if len(batch) > 1 else False
        for message in batch:
            if self._stopping.is_set() and message is not batch[0]:
                return None
            if message.partition_id in blocked:
                continue
            try:
                await self._call(message)
            except Exception as error:  # noqa: BLE001 - whatever a handler raises is a failure
                self._note(error, message)
                if ordered:
                    blocked.add(message.partition_id)
                await self._answer(message.fail(error), message)
            else:
                self.handled += 1
                if batch.is_last_unanswered(message):
                    return await self._ack_and_go_on(batch, message)
                if not message.answered:
                    await self._answer(message.ack(), message)
        return None

    async def _handle_batch(self, batch: Batch[T]) -> Batch[T] | None:
        try:
            await self._call(batch)
        except Exception as error:  # noqa: BLE001
            self._note(error, batch)
            await self._answer(batch.fail(error), batch)
            return None
        self.handled += len(batch)
        return await self._ack_and_go_on(batch, batch) if batch.unanswered else None

    async def _ack_and_go_on(
        self, batch: Batch[T], what: Received[T] | Batch[T]
    ) -> Batch[T] | None:
        """Ack all that is left, and take along what is there, unless the consumer is stopped."""
        if self._stopping.is_set():
            await self._answer(batch.ack(), what)
            return None
        failure, following = await self._ack_and_pop(batch)
        if isinstance(failure, LeaseError):
            self._note_late(failure, what)
        elif failure is not None:
            await following.release()
            raise failure
        return following

    async def _call(self, what: Received[T] | Batch[T]) -> None:
        try:
            if self._is_async:
                await self._handler(what)
                return
            result = await in_thread(self._threads, lambda: self._handler(what))
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError as error:
            raise_if_cancelled()
            raise RuntimeError("something that it waited for was cancelled") from error

    async def _answer(self, answer: Awaitable[None], what: object) -> None:
        """A lease that was lost is no reason to stop: somebody else has the message now."""
        try:
            await answer
        except LeaseError as error:
            self._note_late(error, what)

    def _note_late(self, error: LeaseError, what: object) -> None:
        if error.repeated:
            log.warning("nobody knows whether %r was answered in time: %s", what, error)
        else:
            log.warning("%r was not answered in time: %s", what, error)

    def _note(self, error: Exception, what: Received[T] | Batch[T]) -> None:
        self.failed += 1 if isinstance(what, Received) else len(what)
        log.warning("the handler failed on %r: %s", what, error_text(error))
        if self._on_error is not None:
            self._on_error(error)

    async def _renew(self, batch: Batch[T]) -> None:
        seconds = await self._find_lease_seconds()
        while True:
            await asyncio.sleep(seconds * RENEW_AFTER)
            try:
                await batch.renew(seconds)
            except PASSING as error:
                log.warning("a lease could not be renewed, trying again: %s", error)
            except MonarqError as error:
                if not batch.is_being_answered:
                    log.warning("a lease was lost while its messages were handled: %s", error)
                return
