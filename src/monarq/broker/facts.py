"""What the broker remembers about queues, to know whom a push can serve.

Only a hint: a wrong or missing one costs a look too many or a later one, never a message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from monarq.errors import MonarqError
from monarq.model import ConfiguredQueue
from monarq.store.contract import Store

log = logging.getLogger(__name__)

_MOST = 10_000


class Facts:
    """Looks a queue up in the background when somebody first wants to know about it."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._known: dict[str, ConfiguredQueue] = {}
        self._asking: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def get(self, queue: str) -> ConfiguredQueue | None:
        """What is known; if that is nothing, it will be asked for."""
        found = self._known.get(queue)
        if found is None and queue not in self._asking and len(self._asking) < 100:
            self._asking.add(queue)
            task = asyncio.get_running_loop().create_task(self._ask(queue))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return found

    def peek(self, queue: str) -> ConfiguredQueue | None:
        """What is known."""
        return self._known.get(queue)

    def want(self, queue: str) -> None:
        """Somebody will want to know soon."""
        self.get(queue)

    def learn(self, queue: ConfiguredQueue) -> None:
        if len(self._known) >= _MOST and queue.name not in self._known:
            del self._known[next(iter(self._known))]
        self._known[queue.name] = queue

    def changed(self, name: str, queue: ConfiguredQueue | None) -> None:
        """Remember a queue's new settings; None if it is gone."""
        if queue is None:
            self.forget(name)
        else:
            self.learn(queue)

    def forget(self, queue: str | None = None) -> None:
        if queue is None:
            self._known.clear()
        else:
            self._known.pop(queue, None)

    async def settled(self) -> None:
        """Until nothing is being asked for."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _ask(self, queue: str) -> None:
        try:
            self.learn(await self._store().queue_settings(queue))
        except MonarqError:
            # It does not exist yet, or the store is away: asked again when next wanted.
            pass
        except Exception:
            log.exception("nothing could be learned about a queue")
        finally:
            self._asking.discard(queue)
