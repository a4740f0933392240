"""Gathers pushes and sends them together, in order. What cannot be sent is never lost silently."""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from monarq.client.consuming import PASSING
from monarq.client.link import Link
from monarq.errors import MonarqError
from monarq.model import MAX_BATCH, Push, Pushed, PushItem
from monarq.store.validation import check_int, check_seconds

if TYPE_CHECKING:
    from monarq.client.queue import AsyncQueue

T = TypeVar("T")

_TRIES = 8
_FIRST_PAUSE_SECONDS = 0.1


class UnsentError(MonarqError):
    """Buffered pushes could not be sent. `unsent` holds them, in order, to be kept or pushed
    again: their transaction ids make a repeat harmless."""

    code = "unsent"

    def __init__(self, unsent: list[PushItem], cause: MonarqError) -> None:
        super().__init__(f"{len(unsent)} buffered pushes could not be sent: {cause}")
        self.unsent = unsent


class PushBuffer(Generic[T]):
    """For `async with`: what is added is sent when there are `max_count` of them or the first has
    waited `max_seconds`, and when the block is left. Adding waits while two batches are unsent.

    If a batch cannot be sent after several tries, the next `add`, `flush` or the end of the
    block raises `UnsentError` with all that is left.
    """

    def __init__(
        self, queue: AsyncQueue[T], link: Link, *, max_count: int, max_seconds: float
    ) -> None:
        check_int(max_count, "max_count", 1, MAX_BATCH)
        check_seconds(max_seconds, "max_seconds", low=0, high=86_400)
        self._queue = queue
        self._link = link
        self._max_count = max_count
        self._max_seconds = max_seconds
        self._items: list[PushItem] = []
        self._wanted = asyncio.Event()
        self._room = asyncio.Condition()
        self._flushing = False
        self._error: MonarqError | None = None
        self._sender: asyncio.Task[None] | None = None
        self.sent: int = 0

    async def __aenter__(self) -> PushBuffer[T]:
        self._sender = asyncio.create_task(self._send_all())
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.flush()
        finally:
            if self._sender is not None:
                self._sender.cancel()

    async def add(self, payload: T, **options: Any) -> str:
        """Takes what `push` takes; answers the transaction id."""
        item = self._queue.item(payload, **options)
        if item.transaction_id is None:
            item = msgspec.structs.replace(item, transaction_id=str(uuid.uuid4()))
        async with self._room:
            await self._room.wait_for(
                lambda: self._error is not None or len(self._items) < 2 * self._max_count
            )
            self._raise_error()
            self._items.append(item)
            self._wanted.set()
        assert item.transaction_id is not None
        return item.transaction_id

    async def flush(self) -> None:
        """Returns when everything that was added is stored."""
        async with self._room:
            self._flushing = True
            self._wanted.set()
            try:
                await self._room.wait_for(lambda: self._error is not None or not self._items)
            finally:
                self._flushing = False
            self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            unsent, self._items = self._items, []
            error, self._error = self._error, None
            raise UnsentError(unsent, error)

    async def _send_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wanted.wait()
            deadline = loop.time() + self._max_seconds
            while (
                len(self._items) < self._max_count
                and not self._flushing
                and (left := deadline - loop.time()) > 0
            ):
                self._wanted.clear()
                try:
                    await asyncio.wait_for(self._wanted.wait(), left)
                except TimeoutError:
                    break
            batch = self._items[: self._max_count]
            if batch and self._error is None:
                await self._send(batch)
            async with self._room:
                if not self._items or self._error is not None:
                    self._wanted.clear()
                self._room.notify_all()

    async def _send(self, batch: list[PushItem]) -> None:
        pause = _FIRST_PAUSE_SECONDS
        for tried in range(1, _TRIES + 1):
            try:
                answers: list[Pushed] = await self._link.push(Push(batch))
            except MonarqError as error:
                if tried == _TRIES or not isinstance(error, PASSING):
                    self._error = error
                    return
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause *= 2
            else:
                del self._items[: len(batch)]
                self.sent += len(answers)
                return
