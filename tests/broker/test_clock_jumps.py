"""A running broker whose clock is set: its timers run on, and nobody waits for the lost hour.

The clock here is that of the machine, moved by as much as a test says; the broker's timers run on
time that never jumps. On PostgreSQL it stands for the server's clock, except where a test says
that it is the broker's own.
"""

import asyncio

import pytest

from monarq.broker.broker import Broker
from monarq.clock import SECOND, SystemClock, micros
from monarq.model import QueueKind
from tests.broker.calls import ack, bounded, message, parked, payloads, pop, push, until, wait_for
from tests.broker.conftest import StartBroker

HOUR = 3600.0
SOON = 0.05
"""Between steps of the lifecycle, in seconds: as a broker's 5, and a test need not wait."""


class SetClock(SystemClock):
    """The machine's clock, after somebody has set it."""

    def __init__(self, *, shared: bool = False) -> None:
        self.shared = shared
        self._moved = 0

    def now(self) -> int:
        return super().now() + self._moved

    def move(self, seconds: float) -> None:
        self._moved += micros(seconds)


@pytest.fixture
def moved() -> SetClock:
    return SetClock()


@pytest.fixture
async def broker(start_broker: StartBroker, moved: SetClock) -> Broker:
    return await start_broker(clock=moved, lifecycle_max_seconds=SOON)


async def a_step(broker: Broker) -> None:
    """Until the lifecycle has looked at the clock once more."""
    enough = broker.measures.lifecycle_steps + 2
    await until(lambda: broker.measures.lifecycle_steps >= enough)


async def test_what_is_there_is_delivered_after_the_clock_was_set_back(
    broker: Broker, moved: SetClock
) -> None:
    await push(broker, "q", b"1", partition="a")
    await push(broker, "q", b"2", partition="b")
    assert payloads(await pop(broker, "q", group="g")) == [b"1"]
    await a_step(broker)
    moved.move(-HOUR)
    assert payloads(await bounded(wait_for(broker, "q", 20, group="g"))) == [b"2"]


async def test_what_is_pushed_after_the_clock_was_set_reaches_who_waits(
    broker: Broker, moved: SetClock
) -> None:
    await push(broker, "q", b"0")
    assert payloads(await pop(broker, "q", auto_ack=True)) == [b"0"]
    for seconds in (-HOUR, HOUR, HOUR, -HOUR):
        waiting = wait_for(broker, "q", 20, auto_ack=True)
        await parked(broker, 1)
        moved.move(seconds)
        await push(broker, "q", b"new")
        assert payloads(await bounded(waiting)) == [b"new"]


@pytest.mark.parametrize("seconds", [-HOUR, HOUR])
async def test_a_pop_waits_as_long_as_it_said_whatever_the_clock_does(
    broker: Broker, moved: SetClock, seconds: float
) -> None:
    await push(broker, "q", b"0")
    await pop(broker, "q", auto_ack=True)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    short, long = wait_for(broker, "q", 0.3), wait_for(broker, "q", 60)
    await parked(broker, 2)
    moved.move(seconds)
    assert payloads(await bounded(short)) == []
    assert loop.time() - begin >= 0.3
    assert not long.done()
    long.cancel()


async def test_the_work_of_who_died_with_a_lease_is_done_after_the_clock_was_set_back(
    broker: Broker, moved: SetClock
) -> None:
    await push(broker, "q", b"1")
    assert payloads(await pop(broker, "q", lease_seconds=30.0)) == [b"1"]
    waiting = wait_for(broker, "q", 20)
    await a_step(broker)
    moved.move(-HOUR)
    await a_step(broker)
    moved.move(29)
    await a_step(broker)
    assert not waiting.done()
    moved.move(2)
    assert payloads(await bounded(waiting)) == [b"1"]


async def test_what_is_scheduled_runs_soon_after_the_clock_was_set_forward(
    broker: Broker, moved: SetClock
) -> None:
    await broker.configure("w", kind=QueueKind.WORK)
    await broker.push(message("w", b"1", delay_seconds=HOUR / 2))
    waiting = wait_for(broker, "w", 20)
    await parked(broker, 1)
    moved.move(HOUR)
    assert payloads(await bounded(waiting)) == [b"1"]


async def test_a_lease_is_held_through_a_clock_that_is_set_back(
    broker: Broker, moved: SetClock
) -> None:
    await push(broker, "q", b"1")
    popped = await pop(broker, "q", lease_seconds=30.0)
    await a_step(broker)
    moved.move(-HOUR)
    await a_step(broker)
    await ack(broker, popped)
    assert payloads(await pop(broker, "q")) == []


@pytest.mark.parametrize("place", ["postgres-newest"], indirect=True)
@pytest.mark.parametrize("seconds", [-HOUR, HOUR])
async def test_a_broker_with_a_wrong_clock_hurts_nobody_on_postgres(
    start_broker: StartBroker, seconds: float
) -> None:
    wrong = SetClock(shared=True)
    wrong.move(seconds)
    broker = await start_broker(clock=wrong, lifecycle_max_seconds=SOON)
    await broker.configure("w", kind=QueueKind.WORK)
    await push(broker, "q", b"1")
    popped = await pop(broker, "q", lease_seconds=30.0)
    assert popped.lease_until is not None
    assert abs(popped.lease_until - SystemClock().now() - 30 * SECOND) < 20 * SECOND
    await broker.push(message("w", b"2", delay_seconds=0.2))
    assert payloads(await bounded(wait_for(broker, "w", 20))) == [b"2"]
    await ack(broker, popped)
    assert payloads(await pop(broker, "q")) == []
