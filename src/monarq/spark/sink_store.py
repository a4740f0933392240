"""Pushes straight to a store. Opened once a process, as opening one takes longer than a push."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from monarq.client.portal import Portal
from monarq.errors import MonarqError, NotFoundError, QueueFullError, StoreUnavailableError
from monarq.model import Push, PushStatus, QueueKind
from monarq.spark.sink_http import Written
from monarq.store import Store, open_store

T = TypeVar("T")
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
_CONNECTIONS = 4


class SinkStore:
    """A store, for callers without a loop."""

    def __init__(self, url: str, keys: tuple[bytes, ...]) -> None:
        self._portal = Portal()
        try:
            self._store: Store = self._portal.run(
                open_store(url, keys=keys, connections=_CONNECTIONS)
            )
        except BaseException:
            self._portal.close()
            raise

    def close(self) -> None:
        self._portal.run(self._store.close())
        self._portal.close()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._portal.run(call)

    @property
    def store(self) -> Store:
        return self._store

    def queue_kind(self, name: str) -> QueueKind | None:
        try:
            return self.run(self._store.queue_settings(name)).kind
        except NotFoundError:
            return None

    def push(self, push: Push, written: Written, retry_seconds: float) -> None:
        """Repeated within a bound while the store cannot take it: its ids make that safe."""
        statuses = self.run(_pushed(self._store, push, retry_seconds))
        written.rows += len(statuses)
        written.duplicates += statuses.count(PushStatus.DUPLICATE)


async def _pushed(store: Store, push: Push, retry_seconds: float) -> list[PushStatus]:
    deadline = time.monotonic() + retry_seconds
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            [outcome] = await store.push([push])
            if isinstance(outcome, MonarqError):
                raise outcome
            return [one.status for one in outcome]
        except (StoreUnavailableError, QueueFullError):
            left = deadline - time.monotonic()
            if left <= 0:
                raise
            await asyncio.sleep(min(pause * random.uniform(0.5, 1.0), left))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


_opened: dict[tuple[int, str, tuple[bytes, ...]], SinkStore] = {}


def sink_store(url: str, keys: tuple[bytes, ...]) -> SinkStore:
    """The store at this address, kept open for the tasks to come in this process."""
    place = (os.getpid(), url, keys)
    if place not in _opened:
        _opened[place] = SinkStore(url, keys)
    return _opened[place]
