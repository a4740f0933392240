"""Schedules: each tick once, however many keep them."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from monarq.client.async_client import AsyncClient
from monarq.client.schedules import Schedule
from monarq.clock import SECOND, ManualClock
from monarq.errors import InvalidRequestError
from monarq.jobs.cron import Scheduler
from monarq.model import PushItem
from monarq.operations.records import SCHEDULE_KIND

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(round(NOON.timestamp()) * SECOND)


@pytest.fixture
async def mq(clock: ManualClock) -> AsyncIterator[AsyncClient]:
    async with AsyncClient("memory:", clock=clock) as client:
        await client.queue("tasks").configure(kind="work")
        yield client


def every(expression: str, zone: str = "UTC") -> Schedule:
    return Schedule(
        "s",
        expression,
        lambda transaction_id: PushItem("tasks", b'{"task":"t"}', transaction_id=transaction_id),
        zone=zone,
    )


async def pushed(mq: AsyncClient) -> list[str]:
    return [item.transaction_id for item in (await mq.admin.list_items("tasks")).rows]


async def test_a_tick_is_enqueued_when_its_time_comes(mq: AsyncClient, clock: ManualClock) -> None:
    scheduler = Scheduler(mq.link, [every("*/5 * * * *")], clock)
    assert await scheduler.tick() == 0
    clock.advance(299)
    assert await scheduler.tick() == 0
    clock.advance(1)
    assert await scheduler.tick() == 1
    assert await scheduler.tick() == 0
    assert await pushed(mq) == ["cron:s:2026-03-01T12:05:00Z"]


async def test_many_schedulers_enqueue_a_tick_once(mq: AsyncClient, clock: ManualClock) -> None:
    schedulers = [Scheduler(mq.link, [every("* * * * *")], clock) for _ in range(5)]
    for scheduler in schedulers:
        await scheduler.tick()
    for _ in range(3):
        clock.advance(60)
        await asyncio.gather(*(scheduler.tick() for scheduler in schedulers))
    assert len(await pushed(mq)) == 3


async def test_a_new_schedule_begins_now(mq: AsyncClient, clock: ManualClock) -> None:
    clock.advance(59)
    await Scheduler(mq.link, [every("* * * * *")], clock).tick()
    assert await pushed(mq) == []


async def test_of_ticks_that_nobody_was_there_for_the_last_is_caught_up_with(
    mq: AsyncClient, clock: ManualClock
) -> None:
    scheduler = Scheduler(mq.link, [every("*/10 * * * *")], clock)
    await scheduler.tick()
    clock.advance(600)
    await scheduler.tick()
    clock.advance(45 * 60)
    await Scheduler(mq.link, [every("*/10 * * * *")], clock).tick()
    assert await pushed(mq) == ["cron:s:2026-03-01T12:10:00Z", "cron:s:2026-03-01T12:50:00Z"]


async def test_a_tick_long_past_is_not_caught_up_with(mq: AsyncClient, clock: ManualClock) -> None:
    scheduler = Scheduler(mq.link, [every("0 0 * * *")], clock)
    await scheduler.tick()
    clock.advance(12 * 3600)
    await scheduler.tick()
    clock.advance(2 * 86_400 - 3600)
    await Scheduler(mq.link, [every("0 0 * * *")], clock).tick()
    assert await pushed(mq) == ["cron:s:2026-03-02T00:00:00Z"]


async def test_a_worker_that_slept_over_a_tick_for_long_does_not_catch_up_with_it(
    mq: AsyncClient, clock: ManualClock
) -> None:
    scheduler = Scheduler(mq.link, [every("0 0 * * *")], clock)
    await scheduler.tick()
    clock.advance(14 * 3600)
    assert await scheduler.tick() == 0
    clock.advance(22.5 * 3600)
    assert await scheduler.tick() == 1
    assert await pushed(mq) == ["cron:s:2026-03-03T00:00:00Z"]


async def test_the_first_tick_of_a_schedule_is_caught_up_with(
    mq: AsyncClient, clock: ManualClock
) -> None:
    await Scheduler(mq.link, [every("*/10 * * * *")], clock).tick()
    clock.advance(599)
    restarted = Scheduler(mq.link, [every("*/10 * * * *")], clock)
    assert await restarted.tick() == 0
    clock.advance(6)
    for _ in range(2):
        await Scheduler(mq.link, [every("*/10 * * * *")], clock).tick()
    await restarted.tick()
    assert await pushed(mq) == ["cron:s:2026-03-01T12:10:00Z"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_ticks_go_on_when_the_clock_was_ahead_and_is_set_right(
    mq: AsyncClient, clock: ManualClock, restarted: bool
) -> None:
    scheduler = Scheduler(mq.link, [every("*/10 * * * *")], clock)
    await scheduler.tick()
    clock.advance(86_400)
    await scheduler.tick()
    clock.advance(-86_400)
    if restarted:
        scheduler = Scheduler(mq.link, [every("*/10 * * * *")], clock)
    for _ in range(21):
        await scheduler.tick()
        clock.advance(60)
    ahead, *right = sorted(await pushed(mq), reverse=True)
    assert ahead == "cron:s:2026-03-02T12:00:00Z"
    assert right == ["cron:s:2026-03-01T12:20:00Z", "cron:s:2026-03-01T12:10:00Z"]


async def test_a_clock_that_is_set_back_by_seconds_enqueues_no_tick_again(
    mq: AsyncClient, clock: ManualClock
) -> None:
    await mq.queue("tasks").configure(completed_retention_seconds=0)
    scheduler = Scheduler(mq.link, [every("*/10 * * * *")], clock)
    await scheduler.tick()
    clock.advance(600)
    assert await scheduler.tick() == 1
    clock.advance(-5)
    assert await scheduler.tick() == 0
    clock.advance(5)
    assert await scheduler.tick() == 0


async def test_what_is_known_of_a_schedule_can_be_looked_at(
    mq: AsyncClient, clock: ManualClock
) -> None:
    await Scheduler(mq.link, [every("*/5 * * * *")], clock).tick()
    record = await mq.admin.get_record(SCHEDULE_KIND, "s")
    assert b'"nextTick":"2026-03-01T12:05:00Z"' in record.value


def test_a_time_zone_is_kept_over_its_changes() -> None:
    schedule = every("0 9 * * *", "Europe/Berlin")
    winter = schedule.next_after(datetime(2026, 3, 27, 12, tzinfo=UTC))
    summer = schedule.next_after(datetime(2026, 3, 29, 12, tzinfo=UTC))
    assert (winter.hour, summer.hour) == (8, 7)
    assert schedule.next_after(winter) - winter == timedelta(hours=23)


@pytest.mark.parametrize(
    ("expression", "before", "ticks"),
    [
        ("30 2 * * *", datetime(2026, 3, 29, 0, 45, tzinfo=UTC), ["01:00"]),
        ("30 2 * * *", datetime(2026, 10, 24, 23, 45, tzinfo=UTC), ["00:30"]),
        ("0 * * * *", datetime(2026, 3, 28, 23, 45, tzinfo=UTC), ["00:00", "01:00", "02:00"]),
        ("0 * * * *", datetime(2026, 10, 24, 23, 45, tzinfo=UTC), ["00:00", "01:00", "02:00"]),
    ],
)
async def test_each_tick_comes_once_in_the_nights_of_23_and_25_hours(
    mq: AsyncClient, clock: ManualClock, expression: str, before: datetime, ticks: list[str]
) -> None:
    """In Berlin, where 02:30 is left out at 01:00 UTC in March, and comes at 00:30 and 01:30 UTC
    in October; with a worker that is restarted all the time."""
    clock.advance((before - NOON).total_seconds())
    for _ in range(150):
        await Scheduler(mq.link, [every(expression, "Europe/Berlin")], clock).tick()
        clock.advance(60)
    assert [name[-9:-4] for name in sorted(await pushed(mq))] == ticks


@pytest.mark.parametrize(
    ("expression", "zone"),
    [
        ("nonsense", "UTC"),
        ("* * * *", "UTC"),
        ("0 0 30 2 *", "UTC"),
        ("* * * * *", "Mars/X"),
        ("* * * * *", "Europe"),
        ("* * * * *", "X" * 300),
    ],
)
def test_a_bad_schedule_is_refused_when_it_is_made(expression: str, zone: str) -> None:
    with pytest.raises(InvalidRequestError):
        every(expression, zone)


async def test_a_function_is_registered_with_its_schedule(mq: AsyncClient) -> None:
    @mq.cron("*/5 * * * *", queue="reports")
    def report() -> None: ...

    [schedule] = mq.tasks.schedules.values()
    item = schedule.make_item("cron:x")
    assert (item.queue, item.transaction_id) == ("reports", "cron:x")
    assert list(mq.tasks) == [schedule.name]
    assert report() is None


@pytest.mark.parametrize(
    "known",
    [
        1,
        {"expression": 1},
        {"lastTick": None, "nextTick": "2026-03-01T12:00:00"},
        {"lastTick": None, "nextTick": "0001-01-01T00:00:00Z"},
        {"lastTick": "9999-12-31T00:00:00Z", "nextTick": "9999-12-31T00:00:00Z"},
    ],
    ids=["number", "shape", "no zone", "year 1", "year 9999"],
)
async def test_whatever_the_record_of_a_schedule_holds_its_ticks_come(
    mq: AsyncClient, clock: ManualClock, known: Any
) -> None:
    if isinstance(known, dict):
        known = {"expression": "* * * * *", "zone": "UTC"} | known
    await mq.admin.put_record(SCHEDULE_KIND, "s", json.dumps(known).encode())
    scheduler = Scheduler(mq.link, [every("* * * * *")], clock)
    await scheduler.tick()
    for _ in range(2):
        clock.advance(60)
        await scheduler.tick()
    assert (await pushed(mq))[-2:] == ["cron:s:2026-03-01T12:01:00Z", "cron:s:2026-03-01T12:02:00Z"]


async def test_an_unexpected_error_of_one_schedule_keeps_no_other_from_its_ticks(
    mq: AsyncClient, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(transaction_id: str) -> PushItem:
        raise ZeroDivisionError(transaction_id)

    scheduler = Scheduler(
        mq.link, [Schedule("broken", "* * * * *", broken), every("* * * * *")], clock
    )
    await scheduler.tick()
    clock.advance(60)
    assert await scheduler.tick() == 1
    [record] = caplog.records
    assert "schedule broken failed unexpectedly" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
