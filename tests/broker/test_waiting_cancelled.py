"""Pops that go away while they wait, and signals that come meanwhile: nothing is lost."""

import asyncio

import pytest

from monarq.broker.broker import Broker
from monarq.model import DEFAULT_GROUP, Pop, Push, PushItem, QueueKind
from tests.broker.calls import ack, bounded, is_still, parked, payloads, pop, push, until, wait_for
from tests.broker.watching import Watched


async def test_a_cancelled_pop_frees_its_place_at_once(broker: Broker) -> None:
    first, second = wait_for(broker, "q"), wait_for(broker, "q")
    await parked(broker, 2)
    first.cancel()
    assert broker.measures.pops_parked == 1
    await push(broker, "q", b"1")
    assert payloads(await bounded(second)) == [b"1"]


async def test_a_pop_cancelled_after_it_was_woken_hands_the_message_on(
    broker: Broker, watched: Watched
) -> None:
    first, second = wait_for(broker, "q"), wait_for(broker, "q")
    await parked(broker, 2)
    watched.forget()
    pushed = broker.submit_push(Push([PushItem("q", b"1")]))
    # The answer is set and the wake-up given in one turn; its look has not left.
    pushed.add_done_callback(lambda _: first.cancel())
    await bounded(pushed)
    assert payloads(await bounded(second)) == [b"1"]


async def test_a_pop_cancelled_while_the_store_leases_gives_the_lease_back(
    broker: Broker, watched: Watched
) -> None:
    gate = watched.hold_answers("pop")
    first = wait_for(broker, "q")
    await push(broker, "q", b"1")
    await until(lambda: watched.under_way["pop"] > 0)
    first.cancel()
    del watched.late_gates["pop"]
    second = wait_for(broker, "q")
    gate.set()
    popped = await bounded(second)
    assert payloads(popped) == [b"1"]
    # What nobody received has not been delivered.
    assert popped.messages[0].attempts == 1


async def test_a_pop_that_is_answered_and_cancelled_in_one_turn_loses_nothing(
    broker: Broker,
) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(broker.pop(Pop(queue="q"), 30))
    await parked(broker, 1)

    def cancel_when_answered() -> None:
        # Before the task has been told of its answer.
        if broker.measures.pop_steps["delivered"]:
            task.cancel()
        else:
            loop.call_soon(cancel_when_answered)

    cancel_when_answered()
    await push(broker, "q", b"1")
    with pytest.raises(asyncio.CancelledError):
        await task
    popped = await bounded(wait_for(broker, "q"))
    assert payloads(popped) == [b"1"]
    assert popped.messages[0].attempts == 1


async def test_a_lease_that_nobody_received_goes_to_the_next(broker: Broker) -> None:
    await push(broker, "q", b"1")
    popped = await pop(broker, "q")
    waiting = wait_for(broker, "q")
    await parked(broker, 1)
    broker.give_back(popped, DEFAULT_GROUP)
    again = await bounded(waiting)
    assert payloads(again) == [b"1"]
    assert again.messages[0].attempts == 1


async def test_no_signal_is_lost_while_a_pop_is_looking(broker: Broker, watched: Watched) -> None:
    """The push commits after the look and before the pop has parked."""
    gate = watched.hold_answers("pop")
    waiting = wait_for(broker, "q")
    await until(lambda: watched.under_way["pop"] == 1)
    pushed = broker.submit_push(Push([PushItem("q", b"1")]))
    await bounded(pushed)
    gate.set()
    assert payloads(await bounded(waiting)) == [b"1"]


async def test_who_is_looking_when_a_partition_is_freed_is_not_overtaken(
    broker: Broker, watched: Watched
) -> None:
    await broker.configure("q")
    await push(broker, "q", b"1")
    leased = await pop(broker, "q")
    first, *others = (wait_for(broker, "q") for _ in range(3))
    await parked(broker, 3)
    gate = watched.hold_answers("pop")
    # Its look is in vain, and not back when the next one is woken.
    await push(broker, "q", b"2")
    await until(lambda: watched.under_way["pop"] == 1)
    await ack(broker, leased)
    gate.set()
    assert payloads(await bounded(first)) == [b"2"]
    await until(lambda: is_still(broker))
    assert not any(other.done() for other in others)


async def test_a_queue_may_be_made_while_others_wait_for_it(broker: Broker) -> None:
    waiting = wait_for(broker, "later")
    await parked(broker, 1)
    await broker.configure("later", kind=QueueKind.WORK)
    await push(broker, "later", b"1")
    assert payloads(await bounded(waiting)) == [b"1"]
