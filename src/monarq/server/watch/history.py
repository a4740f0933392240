"""Notes once a minute how everything together stands, for charts of up to 30 days.

A record of the store holds an hour, a slot a minute. Any number of processes may note: who finds
the minute noted leaves it, and the values are the same whoever reads them. A minute in which
nothing changed is not noted: it is as the one before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from monarq.clock import SECOND, Clock
from monarq.errors import MonarqError, NotFoundError
from monarq.model.pages import walk
from monarq.operations.records import HISTORY_KIND
from monarq.record_values import decode_value
from monarq.server.snapshot import Snapshots
from monarq.server.watch.percentiles import of_latencies
from monarq.server.watch.views import View
from monarq.store.contract import Store

logger = logging.getLogger("monarq.watch")

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
KEEP_SECONDS = 31 * 86_400.0
_SAMPLES = 500


class Slot(Struct, frozen=True, array_like=True):
    """The end of a minute. Counters are sums since the queues were made."""

    pushed: int
    completed: int
    failed: int
    dead: int
    pending: int
    lag_seconds: float
    percentiles: tuple[float, float, float] | None
    """Of what was completed in that minute."""
    store_bytes: int


class Hour(Struct):
    slots: dict[Annotated[int, Meta(ge=0, lt=60)], Slot] = {}
    """By the minute of the hour."""


class History:
    """`keep` runs beside the broker, one a process."""

    def __init__(self, snapshots: Snapshots, store: Callable[[], Store], clock: Clock) -> None:
        """`store` may raise a `MonarqError` while there is none."""
        self._snapshots = snapshots
        self._store = store
        self._clock = clock
        self._last: Slot | None = None

    async def keep(self) -> None:
        """Runs for ever."""
        while True:
            await asyncio.sleep((MINUTE - self._clock.now() % MINUTE) / SECOND + 0.2)
            try:
                await self.note()
            except MonarqError as error:
                logger.debug("the minute was not noted: %s", error)
            except Exception:
                logger.exception("the minute could not be noted")

    async def note(self) -> bool:
        """Note the minute that has just ended, unless it was, or nothing changed in it."""
        store = self._store()
        end = self._clock.now() // MINUTE * MINUTE
        begin = end - MINUTE
        key, minute = _key(begin), begin % HOUR // MINUTE
        hour = await _read(store, key)
        if minute in hour.slots:
            self._last = hour.slots[minute]
            return False
        slot = await _measure(store, self._snapshots, begin, end)
        last, self._last = self._last, slot
        # A database grows and shrinks a little by itself.
        if last is not None and hour.slots and slot == replace(last, store_bytes=slot.store_bytes):
            return False
        # Read again: another process may have noted while this one measured.
        hour = await _read(store, key)
        if minute in hour.slots:
            return False
        hour.slots[minute] = slot
        await store.put_record(
            HISTORY_KIND, key, msgspec.json.encode(hour), keep_seconds=KEEP_SECONDS
        )
        return True


async def _read(store: Store, key: str) -> Hour:
    try:
        record = await store.get_record(HISTORY_KIND, key)
    except NotFoundError:
        return Hour(slots={})
    return decode_value(record, Hour) or Hour(slots={})


async def _measure(store: Store, snapshots: Snapshots, begin: int, end: int) -> Slot:
    view = View(await snapshots.read(anew=True))
    flows = view.now.queues.values()
    groups = [group for named in view.now.groups.values() for group in named.values()]
    figures = await snapshots.figures.get()
    return Slot(
        pushed=sum(flow.pushed for flow in flows),
        completed=sum(flow.completed for flow in flows),
        failed=sum(flow.failed for flow in flows),
        dead=sum(flow.dead for flow in flows),
        pending=sum(flow.pending for flow in flows),
        lag_seconds=max(map(view.lag_seconds, groups), default=0.0),
        percentiles=of_latencies(await store.latencies(begin, end - 1, samples=_SAMPLES)),
        store_bytes=int(figures["databaseBytes"]),
    )


async def slots(store: Store, since: int, until: int) -> list[tuple[int, Slot]]:
    """What was noted of the minutes between two times, each with its beginning, in order; and
    the last one before, if it is not older than a day."""
    found: list[tuple[int, Slot]] = []
    first, last = _key(since - 86_400 * SECOND), _key(until)
    async for record in walk(
        lambda limit, after: store.list_records(HISTORY_KIND, limit=limit, after=after), step=200
    ):
        if first <= record.key <= last:
            try:
                begin = _begin(record.key)
            except ValueError:
                continue
            hour = decode_value(record, Hour)
            if hour is None:
                continue
            found += [
                (begin + minute * MINUTE, hour.slots[minute]) for minute in sorted(hour.slots)
            ]
    before = [pair for pair in found if pair[0] < since][-1:]
    return before + [pair for pair in found if since <= pair[0] <= until]


def _key(at: int) -> str:
    """Hours sort as their keys do."""
    return datetime.fromtimestamp(at // HOUR * HOUR / SECOND, UTC).strftime("%Y-%m-%dT%H")


def _begin(key: str) -> int:
    moment = datetime.strptime(key, "%Y-%m-%dT%H").replace(tzinfo=UTC)
    return int(moment.timestamp()) * SECOND
