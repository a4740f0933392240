"""The maintenance switches: kept in the store, seen by all brokers on it within seconds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from monarq.broker.alarms import Alarm, Alarms
from monarq.errors import StoreUnavailableError
from monarq.store.contract import Store

log = logging.getLogger(__name__)

PUSH_KEY = "maintenance.push"
POP_KEY = "maintenance.pop"
_ON = "on"
REFRESH_SECONDS = 2.0


class Maintenance:
    """Reads the switches now and then, and tells `changed` when one was moved."""

    def __init__(
        self,
        alarms: Alarms,
        store: Callable[[], Store],
        changed: Callable[[], None],
        on_unavailable: Callable[[StoreUnavailableError], None],
    ) -> None:
        self._alarms = alarms
        self._store = store
        self._changed = changed
        self._on_unavailable = on_unavailable
        self._alarm: Alarm | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.push = False
        """Pushes go to the buffer files."""
        self.pop = False
        """Pops find nothing."""

    def start(self) -> None:
        self._alarm = self._alarms.after(REFRESH_SECONDS, self._ring)

    async def set(self, push: bool | None, pop: bool | None) -> None:
        """None leaves a switch as it is."""
        for key, value in ((PUSH_KEY, push), (POP_KEY, pop)):
            if value is not None:
                await self._store().set_setting(key, _ON if value else None)
        await self.refresh()

    async def refresh(self) -> None:
        settings = await self._store().get_settings()
        was = (self.push, self.pop)
        self.push = settings.get(PUSH_KEY) == _ON
        self.pop = settings.get(POP_KEY) == _ON
        if (self.push, self.pop) != was:
            log.warning(
                "maintenance: pushes %s, pops %s",
                "go to the buffer" if self.push else "go to the store",
                "find nothing" if self.pop else "are served",
            )
            self._changed()

    def refresh_soon(self) -> None:
        if self._task is None and not self._closed:
            self._alarms.cancel(self._alarm)
            self._ring()

    def close(self) -> None:
        self._closed = True
        self._alarms.cancel(self._alarm)
        if self._task is not None:
            self._task.cancel()

    def _ring(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._refresh_and_go_on())

    async def _refresh_and_go_on(self) -> None:
        try:
            await self.refresh()
        except StoreUnavailableError as error:
            self._on_unavailable(error)
        except Exception:
            log.exception("the maintenance switches cannot be read")
        finally:
            self._task = None
            if not self._closed:
                self._alarm = self._alarms.after(REFRESH_SECONDS, self._ring)
