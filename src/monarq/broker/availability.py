"""Whether there is a store: opens it, notices that it fails, and finds out when it is back.

A store that answers when it is asked may fail again at the next call: a full disk, a lock that
somebody keeps. The log says so once, and that it is over when it has served for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from monarq.broker.alarms import Alarm, Alarms
from monarq.clock import SECOND
from monarq.errors import StoreUnavailableError
from monarq.store.contract import Store

log = logging.getLogger("monarq.store")

Opener = Callable[[], Awaitable[Store]]


class Availability:
    """`get` gives the store while it serves. Told of a failure, it asks the store again and again
    until it answers, and tells `on_up`."""

    def __init__(
        self,
        opener: Opener,
        alarms: Alarms,
        *,
        retry_seconds: float,
        timeout_seconds: float,
        on_opened: Callable[[Store], None],
        on_down: Callable[[], None],
        on_up: Callable[[], None],
    ) -> None:
        self._opener = opener
        self._alarms = alarms
        self._retry_seconds = retry_seconds
        self._timeout_seconds = timeout_seconds
        self._on_opened = on_opened
        self._on_down = on_down
        self._on_up = on_up
        self._store: Store | None = None
        self._task: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None
        self._failed_at: int | None = None
        self._praise: Alarm | None = None
        self._is_told = False
        """Whether the log says that it cannot be used."""
        self.error: StoreUnavailableError | None = None
        """Why the store cannot be used; None while it can."""

    @property
    def is_up(self) -> bool:
        return self.error is None

    @property
    def store(self) -> Store | None:
        """Whether it serves or not."""
        return self._store

    def get(self) -> Store:
        if self.error is not None:
            # A new one: an error that is raised twice gathers both traces.
            raise StoreUnavailableError(str(self.error))
        assert self._store is not None
        return self._store

    async def open(self) -> None:
        """Open the store; if it cannot be reached, go on trying. Other errors are raised."""
        try:
            self._opened(await self._opener())
        except StoreUnavailableError as error:
            self.failed(error)

    def failed(self, error: StoreUnavailableError) -> None:
        """A call to the store failed."""
        if self.error is not None:
            return
        self.error = error
        self._alarms.cancel(self._praise)
        if not self._is_told:
            self._is_told = True
            log.warning("the store cannot be used: %s", error)
        now = self._alarms.now()
        recently = self._failed_at is not None and (
            now - self._failed_at < self._retry_seconds * SECOND
        )
        self._failed_at = now
        self._on_down()
        self._task = asyncio.get_running_loop().create_task(self._recover(wait_first=recently))

    async def probe(self) -> None:
        """Return if the store serves, raise `StoreUnavailableError` otherwise. Whoever asks at the
        same time shares the answer."""
        if self._probing is None:
            self._probing = asyncio.get_running_loop().create_task(self._probe())
            self._probing.add_done_callback(self._probed)
        await asyncio.shield(self._probing)

    async def close(self) -> None:
        for task in (self._task, self._probing):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
        if self._store is not None:
            await self._store.close()

    def _opened(self, store: Store) -> None:
        self._store = store
        self._on_opened(store)

    def _probed(self, task: asyncio.Task[None]) -> None:
        self._probing = None
        if not task.cancelled():
            task.exception()

    async def _probe(self) -> None:
        # With real time, whatever the broker's clock: the store is real.
        try:
            async with asyncio.timeout(self._timeout_seconds):
                if self._store is None:
                    self._opened(await self._opener())
                else:
                    await self._store.ping()
        except TimeoutError:
            raise StoreUnavailableError("the store does not answer") from None

    async def _recover(self, *, wait_first: bool) -> None:
        while True:
            if wait_first:
                await self._alarms.sleep(self._retry_seconds)
            wait_first = True
            try:
                await self.probe()
            except StoreUnavailableError as error:
                self.error = error
                continue
            except Exception:
                log.exception("the store cannot be opened")
                continue
            break
        self.error = None
        self._task = None
        self._praise = self._alarms.after(2 * self._retry_seconds, self._serves)
        self._on_up()

    def _serves(self) -> None:
        self._is_told = False
        log.warning("the store can be used again")
