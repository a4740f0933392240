"""The broker's own timed work: when it runs, that it is bounded, and that it never ends."""

import asyncio

import pytest

from monarq.broker.broker import Broker
from monarq.clock import SECOND, ManualClock
from monarq.errors import StoreUnavailableError
from monarq.model import DeadLetterFilter, ItemState, Push, PushItem, QueueKind
from tests.broker.calls import pop, push, turns, until
from tests.broker.conftest import STORE_NAMES, StartBroker
from tests.broker.watching import Watched


async def steps(broker: Broker, count: int) -> None:
    await until(lambda: broker.measures.lifecycle_steps >= count)
    await until(lambda: not broker._parts.lifecycle.running)


async def test_a_step_runs_at_the_start_and_then_when_the_longest_pause_is_over(
    start_broker: StartBroker, clock: ManualClock
) -> None:
    broker = await start_broker(lifecycle_max_seconds=5.0)
    await steps(broker, 1)
    clock.advance(4.99)
    await turns(50)
    assert broker.measures.lifecycle_steps == 1
    clock.advance(0.01)
    await steps(broker, 2)


async def test_a_lease_that_was_given_moves_the_next_step_forward(
    start_broker: StartBroker, clock: ManualClock
) -> None:
    broker = await start_broker(lifecycle_max_seconds=3600.0)
    await steps(broker, 1)
    await push(broker, "q")
    await pop(broker, "q", lease_seconds=7)
    clock.advance(6.99)
    await turns(50)
    assert broker.measures.lifecycle_steps == 1
    clock.advance(0.02)
    await until(lambda: broker.measures.lifecycle_done["expired"] == 1)


async def test_a_step_knows_when_the_next_is_due(
    start_broker: StartBroker, clock: ManualClock
) -> None:
    broker = await start_broker(lifecycle_max_seconds=3600.0)
    await broker.configure("w", kind=QueueKind.WORK)
    await push(broker, "w", delay_seconds=100.0)
    # The admin call made it look again; this step has seen the item.
    await broker.configure("w", options={"priority": 1})
    await until(lambda: not broker._parts.lifecycle.running)
    await steps(broker, 2)
    clock.advance(100.1)
    await until(lambda: broker.measures.lifecycle_done["promoted"] == 1)
    [item] = (await broker.store.list_items("w")).rows
    assert item.state is ItemState.READY


async def test_steps_are_bounded_and_repeated_until_all_is_done(
    start_broker: StartBroker, clock: ManualClock, watched: Watched
) -> None:
    broker = await start_broker(lifecycle_limit=10, lifecycle_max_seconds=3600.0)
    await broker.configure("w", kind=QueueKind.WORK)
    await broker.push(Push([PushItem("w", b"{}", delay_seconds=10.0) for _ in range(95)]))
    await broker.configure("w", options={"priority": 1})
    await until(lambda: not broker._parts.lifecycle.running)
    before = broker.measures.lifecycle_steps
    clock.advance(10.01)

    def all_done() -> bool:
        # A step that found the work locked by somebody else waits a moment.
        clock.advance(0.01)
        return broker.measures.lifecycle_done["promoted"] == 95

    await until(all_done)
    assert broker.measures.lifecycle_steps - before >= 10
    assert watched.most_under_way["lifecycle"] == 1


async def test_others_are_served_between_the_steps(
    start_broker: StartBroker, clock: ManualClock
) -> None:
    broker = await start_broker(lifecycle_limit=5, lifecycle_max_seconds=3600.0)
    await broker.configure("w", kind=QueueKind.WORK)
    await broker.push(Push([PushItem("w", b"{}", delay_seconds=10.0) for _ in range(500)]))
    await broker.configure("w", options={"priority": 1})
    clock.advance(10.01)
    await until(lambda: broker.measures.lifecycle_done["promoted"] > 0)
    await push(broker, "q")
    assert broker.measures.lifecycle_done["promoted"] < 500


async def test_a_step_that_fails_is_tried_again_and_not_in_a_rush(
    start_broker: StartBroker, clock: ManualClock, watched: Watched
) -> None:
    def disturb(name: str, _: object) -> BaseException | None:
        return RuntimeError("the test's own") if name == "lifecycle" else None

    watched.disturb = disturb
    broker = await start_broker(lifecycle_max_seconds=5.0)
    await until(lambda: broker.measures.lifecycle_failures == 1)
    await turns(50)
    assert broker.measures.lifecycle_failures == 1
    watched.disturb = None
    clock.advance(1.01)
    await until(lambda: broker.measures.lifecycle_steps == 1)
    assert broker.state == "serving"


async def test_the_lifecycle_goes_on_after_the_store_was_away(
    start_broker: StartBroker, clock: ManualClock, watched: Watched
) -> None:
    broker = await start_broker()
    await steps(broker, 1)
    watched.is_down = True
    clock.advance(5.01)
    await until(lambda: broker.state == "store_down")
    watched.is_down = False

    def steps_again() -> bool:
        clock.advance(0.25)
        return broker.measures.lifecycle_steps >= 3

    await until(steps_again)
    assert broker.state == "serving"


@pytest.mark.parametrize("place", STORE_NAMES[1:], indirect=True)
async def test_two_brokers_do_not_do_the_work_twice(
    start_broker: StartBroker, clock: ManualClock
) -> None:
    brokers = [await start_broker(lifecycle_max_seconds=1.0) for _ in range(2)]
    first = brokers[0]
    await first.store.configure("q", options={"retryLimit": 0})
    await first.push(Push([PushItem("q", b"{}", f"p{n}") for n in range(50)]))
    for _ in range(50):
        assert len((await pop(first, "q", lease_seconds=5)).messages) == 1
    clock.advance(5.01)

    def expired() -> int:
        clock.advance(0.1)
        return sum(broker.measures.lifecycle_done["expired"] for broker in brokers)

    await until(lambda: expired() >= 50)
    for _ in range(20):
        clock.advance(1.0)
        await turns()
        await until(lambda: not any(broker._parts.lifecycle.running for broker in brokers))
    assert expired() == 50
    assert await first.store.count_dead_letters(DeadLetterFilter(queue="q")) == 50


async def test_closing_waits_for_a_step_under_way(
    start_broker: StartBroker, watched: Watched
) -> None:
    gate = watched.hold_answers("lifecycle")
    broker = await start_broker()
    await until(lambda: watched.under_way["lifecycle"] == 1)
    closing = asyncio.ensure_future(broker.close(5))
    await turns(50)
    assert not closing.done()
    gate.set()
    await asyncio.wait_for(closing, 30)


async def test_no_step_is_taken_while_the_store_is_away(
    start_broker: StartBroker, clock: ManualClock, watched: Watched
) -> None:
    broker = await start_broker()
    await steps(broker, 1)
    watched.is_down = True
    with pytest.raises(StoreUnavailableError):
        await push(broker, "q")
    await turns(50)
    watched.forget()
    clock.advance(0.5)
    await turns(50)
    assert watched.count("lifecycle") == 0
    assert clock.now() > SECOND
