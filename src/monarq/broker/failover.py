"""Decides where pushes go: to the store, to the buffer files, or nowhere for a moment.

    store down, or maintenance     BUFFER
    store answers, buffer not      BUFFER until it has taken some of the replay, and while much is
    empty                          left; HOLD now and then, so that the replay gains on what comes
                                   in, and HOLD for the last of it
    buffer empty                   DIRECT

While the buffer is not empty no push goes direct, so what one sender pushed stays in order. The
store is asked by `probe` every `retry_seconds` until it answers; then the buffer is replayed.

Calls to the store itself are the broker's: it gives `push` and `probe`, and is told of each change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from urllib.parse import parse_qs, urlsplit

import msgspec

from monarq.broker.push_buffer import PushBuffer
from monarq.broker.replay import Replayer, StorePush
from monarq.clock import Clock, SystemClock, micros
from monarq.config import Settings
from monarq.errors import BufferWriteError, StoreUnavailableError
from monarq.model import Push, Pushed, PushItem, PushStatus

log = logging.getLogger("monarq.buffer")

HOLD_BYTES = 256 << 10
"""When no more than this is left to replay, new pushes wait for it."""
ALLOWANCE_BYTES = 1 << 20
"""What may be appended during a replay before new pushes must wait for it to gain."""


class Route(Enum):
    DIRECT = "direct"
    """To the store."""
    BUFFER = "buffer"
    """To the buffer files, by `keep`."""
    HOLD = "hold"
    """Pushes wait where they are until the route changes."""


class Failover:
    def __init__(
        self,
        buffer: PushBuffer,
        *,
        push: StorePush,
        probe: Callable[[], Awaitable[None]],
        changed: Callable[[Route], None],
        batch_max: int = 1_000,
        batch_max_bytes: int = 8 << 20,
        retry_seconds: float = 1.0,
        adopt_seconds: float = 5.0,
        store_is_up: bool = True,
        clock: Clock | None = None,
    ) -> None:
        """`probe` returns if the store can serve and raises `StoreUnavailableError` if not;
        `push` is used for the replay; `changed` is told when the route is another."""
        self.buffer = buffer
        self._probe = probe
        self._changed = changed
        self._clock = clock or SystemClock()
        self._retry_seconds = retry_seconds
        self._adopt_seconds = adopt_seconds
        self._maintenance = False
        self._store_is_up = store_is_up
        self._allowance = ALLOWANCE_BYTES
        self._is_replaying = False
        self._takes_pushes = store_is_up
        """A store that answers may yet hang or fail on a push: a lock, a full disk."""
        self._adopted_at = time.monotonic()
        self._work = asyncio.Event()
        self._retry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.replayer = Replayer(
            buffer,
            push,
            batch_max=batch_max,
            batch_max_bytes=batch_max_bytes,
            pause=self._pause,
            progress=self._replayed,
        )
        self.route = self._find_route()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="monarq-failover")

    async def close(self) -> None:
        """Stop replaying (what is left stays for the next start) and close the buffer."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await self.buffer.close()

    # --- what the broker says ------------------------------------------------------------

    def store_failed(self) -> None:
        """A call to the store failed: pushes go to the buffer from now on."""
        if self._store_is_up:
            self._store_is_up = self._takes_pushes = False
            self._update()
            self._work.set()

    def set_maintenance(self, on: bool) -> None:
        """In maintenance pushes go to the buffer and stay there."""
        if self._maintenance != on:
            self._maintenance = on
            self._update()
            self.try_now()

    def try_now(self) -> None:
        """Do not wait for the next probe: the store may be back."""
        self._work.set()
        self._retry.set()

    async def keep(
        self, mark: str, pushes: Sequence[Push], *, attempted: bool = False
    ) -> list[list[Pushed]]:
        """Write pushes to the buffer; the answers (`buffered`) are good once this returns.

        `attempted`: the store was called with this mark and these very pushes, in this order,
        and did not answer. Raises `BufferWriteError` or `OverloadedError`, and nothing is kept.
        """
        now = self._clock.now()
        prepared = [_prepare(push, now) for push in pushes]
        if self._is_replaying:
            self._allowance -= sum(len(item.payload) for push in prepared for item in push.items)
        try:
            await self.buffer.append(mark, prepared, attempted=attempted)
        finally:
            self._update()
            self._work.set()
        return [_answers(push) for push in prepared]

    # --- the task ------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._adopt()
                if self._maintenance or (self._store_is_up and self.buffer.is_empty):
                    await _wait(self._work, self._adopt_seconds)
                    continue
                if not self._store_is_up:
                    await self._probe()
                    self._store_is_up = True
                    self._takes_pushes = self.buffer.is_empty
                    self._update()
                await self._replay()
                continue
            except StoreUnavailableError:
                self._store_is_up = self._takes_pushes = False
            except BufferWriteError as error:
                log.error("the replay cannot go on: %s", error)
            except Exception:
                # Whatever it is, pushes that were answered must still be replayed one day.
                log.exception("the replay failed, and is tried again")
            self._update()
            await self._pause()

    async def _replay(self) -> None:
        self._is_replaying, self._allowance = True, ALLOWANCE_BYTES
        try:
            while not self._maintenance and not self.buffer.is_empty:
                self._update()
                await self.replayer.step()
        finally:
            self._is_replaying = False
            self._update()

    def _replayed(self, size: int) -> None:
        if not self._takes_pushes:
            self._takes_pushes = True
            log.warning("the store takes pushes; %d bytes to replay", self.buffer.unread_bytes)
        self._allowance = min(ALLOWANCE_BYTES, self._allowance + size // 2)
        self._update()

    async def _adopt(self) -> None:
        if time.monotonic() - self._adopted_at >= self._adopt_seconds:
            self._adopted_at = time.monotonic()
            await self.buffer.adopt()
            self._update()

    async def _pause(self) -> None:
        await _wait(self._retry, self._retry_seconds)

    # --- the route -----------------------------------------------------------------------

    def _find_route(self) -> Route:
        if self._maintenance or not self._store_is_up:
            return Route.BUFFER
        if self.buffer.is_empty:
            return Route.DIRECT
        is_near_the_end = self.buffer.unread_bytes <= HOLD_BYTES
        gains = self._is_replaying and self._takes_pushes
        if gains and (is_near_the_end or self._allowance <= 0):
            return Route.HOLD
        return Route.BUFFER

    def _update(self) -> None:
        route = self._find_route()
        if route is not self.route:
            self.route = route
            self._changed(route)


def store_name(settings: Settings) -> str:
    """Says which store a buffer is for, whoever its user is, and without a password."""
    parts = urlsplit(settings.store)
    query = parse_qs(parts.query)
    host = parts.netloc.rpartition("@")[2] or ":".join(
        query.get(key, [""])[0] for key in ("host", "port")
    )
    return f"{parts.scheme}://{host}{parts.path}#{settings.schema}"


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    event.clear()


def _prepare(push: Push, now: int) -> Push:
    """With all that makes it the same push whenever it is replayed, and however often."""
    return Push([_prepare_item(item, now) for item in push.items], push.producer, push.commands)


def _prepare_item(item: PushItem, now: int) -> PushItem:
    if item.transaction_id is None:
        item = msgspec.structs.replace(item, transaction_id=str(uuid.uuid4()))
    if item.delay_seconds is not None and item.run_at is None:
        run_at = now + micros(item.delay_seconds)
        item = msgspec.structs.replace(item, run_at=run_at, delay_seconds=None)
    return item


def _answers(push: Push) -> list[Pushed]:
    return [
        Pushed(PushStatus.BUFFERED, item.queue, 0, 0, item.transaction_id or "", item.trace_id)
        for item in push.items
    ]
