"""What the log says of a store that fails."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from monarq.broker.alarms import Alarms
from monarq.broker.availability import Availability
from monarq.clock import ManualClock
from monarq.errors import StoreUnavailableError
from monarq.store import Store, open_store
from tests.broker.buffering import until

RETRY_SECONDS = 1.0


@pytest.fixture
async def availability(clock: ManualClock) -> AsyncIterator[Availability]:
    async def opener() -> Store:
        return await open_store("memory:", clock=clock)

    alarms = Alarms(clock, asyncio.get_running_loop())
    availability = Availability(
        opener,
        alarms,
        retry_seconds=RETRY_SECONDS,
        timeout_seconds=30,
        on_opened=lambda store: None,
        on_down=lambda: None,
        on_up=lambda: None,
    )
    await availability.open()
    yield availability
    await availability.close()
    alarms.close()


async def fail_and_recover(availability: Availability, clock: ManualClock, why: str) -> None:
    """As with a full disk: whoever asks is answered, and the next write fails."""
    availability.failed(StoreUnavailableError(why))
    await asyncio.sleep(0)
    clock.advance(RETRY_SECONDS)
    await until(lambda: availability.is_up)


async def test_a_store_that_fails_with_every_call_is_told_once(
    availability: Availability, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(50):
        await fail_and_recover(availability, clock, f"full, {number}")
    assert caplog.messages == ["the store cannot be used: full, 0"]
    clock.advance(2 * RETRY_SECONDS)
    await until(lambda: len(caplog.messages) > 1)
    assert caplog.messages[1:] == ["the store can be used again"]


async def test_an_outage_after_one_that_was_over_is_told_again(
    availability: Availability, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(2):
        await fail_and_recover(availability, clock, f"gone, {number}")
        clock.advance(2 * RETRY_SECONDS)
        await until(lambda: caplog.messages[-1] == "the store can be used again")
    told = [message for message in caplog.messages if "cannot" in message]
    assert told == [f"the store cannot be used: gone, {number}" for number in range(2)]
