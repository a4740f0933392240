"""The snapshot of counters from which the dashboard, the metrics and the status routes are made.

A process has one `Snapshots`. It holds the last reading of three parts: the counters of all queues,
the counters of all groups, and the figures of the database. They are apart because the sums of the
status routes need the queues alone: the age of a group's oldest message costs a look into each
partition in which the group is behind.

All parts are refreshed by one rule:

- A caller names the greatest age that it accepts, and gets the last reading if it is young
  enough. An age of 0 means a reading that began after the call. The status routes ask for 0, since
  Queen's clients expect current counters there; pages of the dashboard for half a second; the
  metrics for five seconds, since a scrape of very many queues is dear; the size of the database in
  the overview may be half a minute old.
- A reading that takes more than `SLOW_SECONDS`, as of ten thousand queues, satisfies every caller
  for `KEPT_PER_READING` times as long as it took, so that readings take at most a fifth of the time
  however often callers ask. Two ask for a new one (`anew`) all the same: the page of a queue that
  the last reading does not have, and the minute that is noted for charts.
- At most one task reads a part; callers that come meanwhile wait for it, or for the next one if
  its data would be too old for them. A caller that is cancelled leaves the reading alone.
- An error of a reading reaches the callers that wait for it and is not kept: while the store is
  away, each call asks anew, which the broker answers at once. The last reading is dropped, so that
  no caller takes counters of before the outage for current ones.

A reading fetches pages of `PAGE` rows, so that no page holds up the event loop or other calls of
the store for long. Larger sums over its rows belong into a thread: see `off_loop`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from monarq.clock import Clock
from monarq.model import GroupFlow, Page, QueueFlow
from monarq.server.queue_totals import Totals, add_up
from monarq.store.contract import Store

SLOW_SECONDS = 0.05
KEPT_PER_READING = 4.0
MOST_KEPT_SECONDS = 8.0
PAGE = 1_000
_MANY_ROWS = 1_000

T = TypeVar("T")
Labels = tuple[str | None, str | None]
"""Of queues: namespace and task."""


class Part(Generic[T]):
    """The last reading of one part, and the task that reads it."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._value: T | None = None
        self._number = 0
        """Readings that have begun; `_value_number` is that of the last value."""
        self._value_number = 0
        self._took = 0.0
        self._task: asyncio.Task[None] | None = None
        self.read_at = float("-inf")
        """When the last reading ended, by the clock of the event loop."""

    async def get(self, max_age: float = 0.0, *, anew: bool = False) -> T:
        """Return a reading that is at most `max_age` seconds old, or was slow and is kept.
        With `anew`, return one that began after the call, slow or not."""
        begun = self._number
        while True:
            is_good = self._value_number > begun or (not anew and self.age < self._most(max_age))
            if self._value is not None and is_good:
                return self._value
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._refresh())
                self._task.add_done_callback(_note_error)
            task = self._task
            await asyncio.wait({task})
            task.result()

    @property
    def age(self) -> float:
        return asyncio.get_running_loop().time() - self.read_at

    @property
    def is_in_use(self) -> bool:
        """Whether it is being read, or may still serve a caller of current counters."""
        is_being_read = self._task is not None and not self._task.done()
        return is_being_read or self.age < MOST_KEPT_SECONDS

    async def close(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})

    def _most(self, max_age: float) -> float:
        if self._took <= SLOW_SECONDS:
            return max_age
        return max(max_age, min(self._took * KEPT_PER_READING, MOST_KEPT_SECONDS))

    async def _refresh(self) -> None:
        now = asyncio.get_running_loop().time
        begin = now()
        self._number += 1
        number = self._number
        try:
            self._value = await self._read()
        except BaseException:
            self._value = None
            raise
        self._value_number = number
        self.read_at = now()
        self._took = self.read_at - begin


def _note_error(task: asyncio.Task[None]) -> None:
    """Retrieve the error, which nobody does if all callers were cancelled."""
    if not task.cancelled():
        task.exception()


@dataclass(slots=True)
class QueueCounters:
    at: int
    """When the reading began, in microseconds."""
    flows: dict[str, QueueFlow]
    _totals: Totals | None = None

    async def totals(self) -> Totals:
        if self._totals is None:
            flows = self.flows.values()
            self._totals = await off_loop(len(flows), lambda: add_up(flows))
        return self._totals


@dataclass(slots=True)
class GroupCounters:
    at: int
    flows: dict[str, dict[str, GroupFlow]] = field(default_factory=dict)
    """By queue and name."""


@dataclass(slots=True)
class Snapshot:
    """The counters of all queues and groups at one moment."""

    at: int
    queues: dict[str, QueueFlow]
    groups: dict[str, dict[str, GroupFlow]]
    """By queue and name."""
    groups_at: int

    def group_count(self) -> int:
        return sum(map(len, self.groups.values()))


EMPTY = Snapshot(0, {}, {}, 0)


class Snapshots:
    def __init__(self, store: Callable[[], Store], clock: Clock) -> None:
        """`store` may raise a `MonarqError` while there is none."""
        self._store = store
        self._clock = clock
        self.queues: Part[QueueCounters] = Part(self._read_queues)
        self.groups: Part[GroupCounters] = Part(self._read_groups)
        self.figures: Part[dict[str, Any]] = Part(self._read_figures)
        self._labelled: dict[Labels, Part[QueueCounters]] = {}

    async def read(self, max_age: float = 0.0, *, anew: bool = False) -> Snapshot:
        queues = await self.queues.get(max_age, anew=anew)
        groups = await self.groups.get(max_age, anew=anew)
        return Snapshot(queues.at, queues.flows, groups.flows, groups.at)

    async def totals(self, namespace: str | None = None, task: str | None = None) -> Totals:
        """Return current sums over all queues, or over those with these labels."""
        queues = await self._queues_with((namespace, task)).get()
        return await queues.totals()

    async def close(self) -> None:
        parts: list[Part[Any]] = [self.queues, self.groups, self.figures]
        for part in (*parts, *self._labelled.values()):
            await part.close()

    def _queues_with(self, labels: Labels) -> Part[QueueCounters]:
        """Few queues are read faster by themselves than with all."""
        if labels == (None, None):
            return self.queues
        self._labelled = {key: one for key, one in self._labelled.items() if one.is_in_use}
        return self._labelled.setdefault(labels, Part(lambda: self._read_queues(labels)))

    async def _read_queues(self, labels: Labels = (None, None)) -> QueueCounters:
        at, store = self._clock.now(), self._store()
        namespace, task = labels
        rows = await _all(
            lambda after: store.queue_flows(namespace=namespace, task=task, limit=PAGE, after=after)
        )
        return QueueCounters(at, {flow.queue: flow for flow in rows})

    async def _read_groups(self) -> GroupCounters:
        at, store = self._clock.now(), self._store()
        found = GroupCounters(at)
        for flow in await _all(lambda after: store.group_flows(limit=PAGE, after=after)):
            found.flows.setdefault(flow.queue, {})[flow.group] = flow
        return found

    async def _read_figures(self) -> dict[str, Any]:
        return await self._store().health_figures()


async def _all(fetch: Callable[[str | None], Awaitable[Page[T]]]) -> list[T]:
    page = await fetch(None)
    rows = page.rows
    while page.next is not None:
        page = await fetch(page.next)
        rows += page.rows
    return rows


async def off_loop(rows: int, make: Callable[[], T]) -> T:
    """Call `make` in a thread if it looks at many rows."""
    return await asyncio.to_thread(make) if rows > _MANY_ROWS else make()
