"""For tests of code that uses Monarq: a broker in memory, a clock to move, and assertions.

async def test_an_order_is_confirmed() -> None:
    async with TestBroker() as broker:
        await place_order(broker.client, "ada")
        await broker.assert_pushed("orders", {"customer": "ada"})
        await broker.drain(tasks)               # runs the tasks that are due
        await broker.advance(3600)              # an hour later
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from monarq.client.async_client import AsyncClient
from monarq.client.tasks import Tasks
from monarq.clock import ManualClock
from monarq.errors import NotFoundError
from monarq.jobs.worker import Worker
from monarq.model import ItemState
from monarq.model.pages import walk

_ANYTHING = object()
_WAITING = (ItemState.READY, ItemState.SCHEDULED, ItemState.LEASED)


class TestBroker:
    """A broker of its own for one test: nothing is stored anywhere, and time stands still until it
    is moved."""

    __test__ = False  # it is not a test itself, whatever pytest makes of its name

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.client = AsyncClient("memory:", clock=self.clock, name="test")

    async def __aenter__(self) -> TestBroker:
        await self.client.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    # --- time and work -----------------------------------------------------------------------

    async def advance(self, seconds: float) -> None:
        """Move the clock, and let happen what time brings: leases end, scheduled items become
        ready, what is too old dies."""
        self.clock.advance(seconds)
        await self._settle()

    async def _settle(self) -> None:
        from monarq.client.embedded import EmbeddedLink

        assert isinstance(self.client.link, EmbeddedLink)
        broker = self.client.link.broker
        while True:
            report = await broker.advance_time()
            if not (report.expired or report.promoted or report.buried or report.removed):
                return

    async def drain(self, tasks: Tasks | None = None, *, queues: Sequence[str] = ()) -> int:
        """Run jobs until nothing is due any more; how many were run. `tasks` are those of this
        broker's client, unless others are given."""
        known = self.client.tasks if tasks is None else tasks
        where = list(queues) or known.queues
        if not where:
            return 0
        worker = Worker(
            self.client, where, tasks=known, burst=True, concurrency=10, clock=self.clock
        )
        await worker.run()
        return worker.presence.completed + worker.presence.failed

    # --- looking -----------------------------------------------------------------------------

    async def pushed(self, queue: str) -> list[Any]:
        """The payloads of all messages that are kept in a queue, or of all items, in order."""
        admin = self.client.admin
        rows = walk(lambda limit, after: admin.list_messages(queue, limit=limit, after=after))
        try:
            return [msgspec.json.decode(row.payload) async for row in rows]
        except NotFoundError:
            return []

    async def pending(self, queue: str) -> int:
        """How many messages somebody still has before them, or items are not finished."""
        try:
            counts = (await self.client.admin.get_queue(queue)).counts
        except NotFoundError:
            return 0
        return counts.pending

    async def assert_pushed(
        self, queue: str, payload: Any = _ANYTHING, *, times: int | None = None
    ) -> None:
        """That this payload (or anything) was pushed: once at least, or exactly so many times."""
        everything = await self.pushed(queue)
        count = len(everything) if payload is _ANYTHING else everything.count(payload)
        what = "anything" if payload is _ANYTHING else repr(payload)
        if times is None:
            assert count, f"{what} was not pushed to {queue!r}; there is {everything!r}"
        else:
            assert count == times, (
                f"{what} was pushed {count} times to {queue!r}, not {times}; "
                f"there is {everything!r}"
            )

    async def assert_empty(self, queue: str) -> None:
        """That nobody has anything left to do in a queue."""
        pending = await self.pending(queue)
        assert not pending, f"{pending} are left in {queue!r}"

    async def assert_enqueued(self, task: Any, *args: Any, **kwargs: Any) -> None:
        """That a task was enqueued with these arguments, and has not finished."""
        wanted = msgspec.json.decode(task.to_item(args, kwargs).payload)
        queue = task.options.queue
        waiting = [
            msgspec.json.decode(item.payload)
            for state in _WAITING
            for item in (await self._items(queue, state))
        ]
        assert wanted in waiting, f"{wanted!r} does not wait in {queue!r}; there is {waiting!r}"

    async def _items(self, queue: str, state: ItemState) -> list[Any]:
        try:
            return (await self.client.admin.list_items(queue, state=state, limit=1000)).rows
        except NotFoundError:
            return []
