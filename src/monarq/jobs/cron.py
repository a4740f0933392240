"""Enqueues what schedules say, once a tick however many workers there are.

The tick is in the transaction id of what is pushed, and a transaction id is stored once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Struct

from monarq.client.link import Link
from monarq.client.schedules import Schedule
from monarq.client.work_queues import WorkQueues
from monarq.clock import SECOND, Clock
from monarq.errors import MonarqError, NotFoundError
from monarq.model import Push
from monarq.operations.records import SCHEDULE_KIND
from monarq.record_values import decode_value
from monarq.times import Time

log = logging.getLogger("monarq.cron")

#: A tick that nobody was there for is caught up with, if it is not older than this.
CATCH_UP_SECONDS = 3600.0
#: Ticks further ahead than this are none: the clock was ahead when they were enqueued. (Clocks of
#: workers differ by less, and what is kept of a tick stands against enqueueing it twice.)
_AHEAD_SECONDS = 60.0
_KNOWN_SECONDS = 400 * 86_400.0
_LONGEST_SLEEP_SECONDS = 30.0


class ScheduleInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is known of a schedule."""

    expression: str
    zone: str
    last_tick: Time | None
    next_tick: Time


class Scheduler:
    """Enqueues ticks from the last one on that anybody enqueued; of a schedule that is new, from
    now on."""

    def __init__(self, link: Link, schedules: Iterable[Schedule], clock: Clock) -> None:
        self._link = link
        self._schedules = list(schedules)
        self._clock = clock
        self._queues = WorkQueues(link)
        self._done_until: dict[str, datetime] = {}

    async def keep(self) -> None:
        """Runs for ever."""
        while True:
            await self.tick()
            await asyncio.sleep(self._seconds_to_next())

    async def tick(self) -> int:
        """Enqueue what is due: of ticks that were missed, the last one alone. How many."""
        pushed = 0
        for schedule in self._schedules:
            try:
                pushed += await self._tick(schedule)
            except MonarqError as error:
                log.warning("schedule %s could not be kept, trying again: %s", schedule.name, error)
            except Exception:
                log.exception("schedule %s failed unexpectedly, trying again", schedule.name)
        return pushed

    async def _tick(self, schedule: Schedule) -> bool:
        now = self._now()
        since = self._done_until.get(schedule.name)
        if since is None:
            since = self._done_until[schedule.name] = await self._find_last(schedule, now)
        if since > now + timedelta(seconds=_AHEAD_SECONDS):
            since = self._done_until[schedule.name] = now
        tick = schedule.last_until(now, max(since, now - timedelta(seconds=CATCH_UP_SECONDS)))
        if tick is None:
            return False
        item = schedule.make_item(schedule.transaction_id(tick))
        await self._queues.ensure(item.queue)
        await self._link.push(Push([item], commands=schedule.commands))
        self._done_until[schedule.name] = tick
        await self._tell(schedule, tick)
        return True

    async def _find_last(self, schedule: Schedule, now: datetime) -> datetime:
        try:
            record = await self._link.admin.get_record(SCHEDULE_KIND, schedule.name)
        except NotFoundError:
            known = None
        else:
            known = decode_value(record, ScheduleInfo)
        if known is None:
            await self._tell(schedule, None)
            return now
        # Before its first tick: that one may have come while nobody was there.
        oldest = now - timedelta(seconds=CATCH_UP_SECONDS)
        return known.last_tick or min(now, max(oldest, known.next_tick) - timedelta(seconds=1))

    async def _tell(self, schedule: Schedule, tick: datetime | None) -> None:
        known = ScheduleInfo(
            expression=schedule.expression,
            zone=schedule.zone,
            last_tick=tick,
            next_tick=schedule.next_after(tick or self._now()),
        )
        await self._link.admin.put_record(
            SCHEDULE_KIND, schedule.name, msgspec.json.encode(known), keep_seconds=_KNOWN_SECONDS
        )

    def _seconds_to_next(self) -> float:
        now = self._now()
        waits = [
            (
                schedule.next_after(max(self._done_until.get(schedule.name, now), now)) - now
            ).total_seconds()
            for schedule in self._schedules
        ]
        # The clock may be set meanwhile, so never sleep for long.
        return max(0.05, min([*waits, _LONGEST_SLEEP_SECONDS]))

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now() / SECOND, UTC)
