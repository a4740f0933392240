"""Every reason for which a parked pop must look again."""

from collections.abc import Awaitable, Callable

import pytest

from monarq.broker.broker import Broker
from monarq.clock import ManualClock
from monarq.model import (
    Ack,
    AckStatus,
    Pop,
    Popped,
    Push,
    PushItem,
    QueueKind,
    SeekTo,
    StartFrom,
    Transaction,
)
from monarq.operations.groups import Seek
from tests.broker.calls import (
    ack,
    bounded,
    message,
    parked,
    payloads,
    pop,
    push,
    turns,
    until,
    wait_for,
)
from tests.broker.conftest import STORE_NAMES, StartBroker
from tests.broker.watching import Watched

WORK = QueueKind.WORK


async def leased(broker: Broker, queue: str, count: int = 1, **fields: object) -> Popped:
    """One of `count` messages is leased, and nothing else can be had."""
    await broker.push(Push([PushItem(queue, b"%d" % n) for n in range(1, count + 1)]))
    return await pop(broker, queue, **fields)


async def step(broker: Broker, clock: ManualClock, seconds: float) -> None:
    clock.advance(seconds)
    await turns()


async def test_a_lease_that_ends_frees_what_is_behind_it(broker: Broker) -> None:
    popped = await leased(broker, "q", 2)
    waiting = wait_for(broker, "q")
    await parked(broker, 1)
    await ack(broker, popped)
    assert payloads(await bounded(waiting)) == [b"2"]


async def test_an_ack_of_a_whole_lease_frees_all_its_partitions(broker: Broker) -> None:
    both = Push([PushItem("q", b"{}", "a"), PushItem("q", b"{}", "b")])
    await broker.push(both)
    popped = await pop(broker, "q", batch=10, partitions=2)
    assert len(popped.messages) == 2
    await broker.push(both)
    waiting = [wait_for(broker, "q") for _ in range(3)]
    await parked(broker, 3)
    await bounded(broker.submit_acks([Ack(lease_id=popped.lease_id)]))
    for future in waiting[:2]:
        assert len((await bounded(future)).messages) == 1
    await parked(broker, 1)


async def test_an_ack_of_a_lease_over_several_queues_wakes_at_each(broker: Broker) -> None:
    for name in ("a", "b"):
        await broker.configure(name, namespace="shop")
    both = Push([PushItem("a", b"{}"), PushItem("b", b"{}")])
    await broker.push(both)
    popped = await pop(broker, None, namespace="shop", batch=10, partitions=2)
    assert {message.queue for message in popped.messages} == {"a", "b"}
    await broker.push(both)
    waiting = [wait_for(broker, name) for name in ("a", "b")]
    await parked(broker, 2)
    await bounded(broker.submit_acks([Ack(lease_id=popped.lease_id)]))
    for future in waiting:
        assert len((await bounded(future)).messages) == 1


async def test_a_failed_message_is_delivered_after_its_retry_delay(
    broker: Broker, clock: ManualClock
) -> None:
    await broker.configure("q", options={"retryDelay": 2_000})
    popped = await leased(broker, "q")
    waiting = wait_for(broker, "q")
    await parked(broker, 1)
    await ack(broker, popped, AckStatus.FAILED)
    await parked(broker, 1)
    await step(broker, clock, 1.99)
    assert not waiting.done()
    await step(broker, clock, 0.02)
    again = await bounded(waiting)
    assert [m.attempts for m in again.messages] == [2]


async def test_a_released_message_goes_to_the_next(broker: Broker) -> None:
    popped = await leased(broker, "q")
    waiting = wait_for(broker, "q")
    await parked(broker, 1)
    await ack(broker, popped, AckStatus.RELEASE)
    assert payloads(await bounded(waiting)) == [b"1"]


async def test_a_lease_that_runs_out_wakes_the_next(broker: Broker, clock: ManualClock) -> None:
    await leased(broker, "q", lease_seconds=3)
    waiting = wait_for(broker, "q")
    await parked(broker, 1)
    await step(broker, clock, 2.99)
    assert not waiting.done()
    await step(broker, clock, 0.02)
    assert [m.attempts for m in (await bounded(waiting)).messages] == [2]


async def test_a_delayed_message_is_delivered_when_it_is_old_enough(
    broker: Broker, clock: ManualClock
) -> None:
    await broker.configure("q", options={"delayedProcessing": 10})
    waiting = wait_for(broker, "q", 60)
    await parked(broker, 1)
    await push(broker, "q", b"1")
    await parked(broker, 1)
    await step(broker, clock, 9.99)
    assert not waiting.done()
    await step(broker, clock, 0.02)
    assert payloads(await bounded(waiting)) == [b"1"]


async def test_what_is_delayed_behind_a_lease_is_delivered_on_time(
    broker: Broker, clock: ManualClock
) -> None:
    """The pop that found the first message knows nothing of the second, which is too young."""
    await broker.configure("q", options={"delayedProcessing": 10})
    first, second = wait_for(broker, "q", 60, batch=10), wait_for(broker, "q", 60, batch=10)
    await parked(broker, 2)
    await push(broker, "q", b"1")
    await step(broker, clock, 5)
    await push(broker, "q", b"2")
    await parked(broker, 2)
    await step(broker, clock, 5.01)
    popped = await bounded(first)
    assert payloads(popped) == [b"1"]
    await ack(broker, popped)
    await parked(broker, 1)
    await step(broker, clock, 5)
    assert payloads(await bounded(second)) == [b"2"]


@pytest.mark.parametrize("option", ["delayedProcessing", "windowBuffer"])
async def test_a_delay_that_is_switched_off_wakes(broker: Broker, option: str) -> None:
    await broker.configure("q", options={option: 60})
    waiting = wait_for(broker, "q", 60)
    await parked(broker, 1)
    await push(broker, "q", b"1")
    await parked(broker, 1)
    await broker.configure("q", options={option: 0})
    assert payloads(await bounded(waiting)) == [b"1"]


async def test_a_queue_that_gets_a_label_wakes_pops_by_this_label(broker: Broker) -> None:
    await push(broker, "q", b"1")
    waiting = wait_for(broker, None, 60, namespace="shop")
    await parked(broker, 1)
    await broker.configure("q", namespace="shop")
    assert payloads(await bounded(waiting)) == [b"1"]


async def test_a_window_that_closes_wakes(broker: Broker, clock: ManualClock) -> None:
    await broker.configure("q", options={"windowBuffer": 5})
    waiting = wait_for(broker, "q", 60, batch=10)
    await parked(broker, 1)
    for number in range(3):
        await push(broker, "q", b"%d" % number)
        await parked(broker, 1)
        await step(broker, clock, 4)
        await parked(broker, 1)
    assert not waiting.done()
    await step(broker, clock, 1.01)
    assert payloads(await bounded(waiting)) == [b"0", b"1", b"2"]


async def test_a_scheduled_item_wakes_when_it_is_due(broker: Broker, clock: ManualClock) -> None:
    await broker.configure("w", kind=WORK)
    waiting = wait_for(broker, "w", 60)
    await parked(broker, 1)
    await push(broker, "w", b"1", delay_seconds=20.0)
    await parked(broker, 1)
    await step(broker, clock, 19.99)
    assert not waiting.done()
    await step(broker, clock, 0.02)
    assert payloads(await bounded(waiting)) == [b"1"]


@pytest.mark.parametrize("place", STORE_NAMES[1:], indirect=True)
async def test_a_scheduled_item_is_not_stranded_by_a_restart(
    start_broker: StartBroker, clock: ManualClock
) -> None:
    broker = await start_broker()
    await broker.configure("w", kind=WORK)
    await push(broker, "w", b"1", delay_seconds=20.0)
    await broker.close(5)
    broker = await start_broker()
    waiting = wait_for(broker, "w", 60)
    await parked(broker, 1)
    await step(broker, clock, 20.01)
    assert payloads(await bounded(waiting)) == [b"1"]


async def test_a_failed_item_wakes_after_its_backoff(broker: Broker, clock: ManualClock) -> None:
    await broker.configure("w", kind=WORK)
    popped = await leased(broker, "w")
    waiting = wait_for(broker, "w", 60)
    await parked(broker, 1)
    await ack(broker, popped, AckStatus.FAILED)
    await parked(broker, 1)
    await step(broker, clock, 2.01)
    assert payloads(await bounded(waiting)) == [b"1"]


async def test_an_expired_item_lease_wakes(broker: Broker, clock: ManualClock) -> None:
    await broker.configure("w", kind=WORK)
    await leased(broker, "w", lease_seconds=3)
    waiting = wait_for(broker, "w", 60)
    await parked(broker, 1)
    await step(broker, clock, 3.01)
    assert payloads(await bounded(waiting)) == [b"1"]


async def test_a_finished_item_wakes_nobody(broker: Broker, watched: Watched) -> None:
    await broker.configure("w", kind=WORK)
    popped = await leased(broker, "w")
    wait_for(broker, "w", 60)
    await parked(broker, 1)
    watched.forget()
    await ack(broker, popped)
    await turns()
    assert watched.count("pop") == 0


@pytest.mark.parametrize("kind", [QueueKind.ORDERED, WORK])
async def test_what_dies_wakes_those_who_wait_at_the_dead_queue(
    broker: Broker, kind: QueueKind
) -> None:
    await broker.configure("dead", kind=kind)
    await broker.configure("q", kind=kind, options={"deadQueue": "dead"})
    popped = await leased(broker, "q")
    waiting = wait_for(broker, "dead", 60)
    await parked(broker, 1)
    await ack(broker, popped, AckStatus.DEAD)
    assert payloads(await bounded(waiting)) == [b"1"]


async def test_what_dies_of_expired_leases_wakes_those_at_the_dead_queue(
    broker: Broker, clock: ManualClock
) -> None:
    await broker.configure("dead")
    await broker.configure("q", options={"deadQueue": "dead", "retryLimit": 0})
    await leased(broker, "q", lease_seconds=3)
    waiting = wait_for(broker, "dead", 60)
    await parked(broker, 1)
    await step(broker, clock, 3.01)
    assert payloads(await bounded(waiting)) == [b"1"]


async def test_a_transaction_wakes_for_its_pushes_and_its_acks(broker: Broker) -> None:
    popped = await leased(broker, "q", 2)
    first, second = wait_for(broker, "q"), wait_for(broker, "other")
    await parked(broker, 2)
    await bounded(
        broker.submit_transaction(
            Transaction([message("other", b"3"), Ack(lease_id=popped.lease_id)])
        )
    )
    assert payloads(await bounded(first)) == [b"2"]
    assert payloads(await bounded(second)) == [b"3"]


async def _resume(broker: Broker) -> None:
    await broker.resume_queue("q")


async def _seek(broker: Broker) -> None:
    await broker.call(Seek(group="g", queue="q", to=SeekTo.START))


async def _subscribe(broker: Broker) -> None:
    await broker.subscribe("g", start=StartFrom.ALL, queue="q")


async def _forget_group(broker: Broker) -> None:
    await broker.delete_group("g", queue="q")


@pytest.mark.parametrize("change", [_seek, _subscribe, _forget_group])
async def test_an_admin_call_that_makes_something_available_wakes(
    broker: Broker, change: Callable[[Broker], Awaitable[None]]
) -> None:
    await push(broker, "q", b"1")
    await ack(broker, await pop(broker, "q", group="g"), group="g")
    waiting = wait_for(broker, "q", group="g")
    await parked(broker, 1)
    await change(broker)
    assert payloads(await bounded(waiting)) == [b"1"]


async def test_a_paused_queue_serves_nobody_until_it_is_resumed(broker: Broker) -> None:
    await broker.configure("q")
    waiting = wait_for(broker, "q")
    await parked(broker, 1)
    await broker.pause_queue("q")
    await push(broker, "q", b"1")
    await parked(broker, 1)
    assert not waiting.done()
    await _resume(broker)
    assert payloads(await bounded(waiting)) == [b"1"]


async def test_a_deleted_message_wakes_those_who_wait_behind_it(broker: Broker) -> None:
    await broker.configure("q", options={"retryDelay": 3_600_000})
    popped = await leased(broker, "q")
    await ack(broker, popped, AckStatus.FAILED)
    await push(broker, "q", b"behind")
    waiting = wait_for(broker, "q")
    await parked(broker, 1)
    [message] = popped.messages
    await broker.delete_message(message.partition_id, message.transaction_id)
    assert payloads(await bounded(waiting)) == [b"behind"]


async def test_a_redriven_message_wakes(broker: Broker) -> None:
    await ack(broker, await leased(broker, "q"), AckStatus.DEAD)
    waiting = wait_for(broker, "q")
    await parked(broker, 1)
    assert await broker.redrive(queue="q") == 1
    assert payloads(await bounded(waiting)) == [b"1"]


async def test_a_retried_item_wakes(broker: Broker) -> None:
    await broker.configure("w", kind=WORK)
    popped = await leased(broker, "w")
    await ack(broker, popped)
    waiting = wait_for(broker, "w")
    await parked(broker, 1)
    await broker.retry_item(popped.messages[0].id)
    assert payloads(await bounded(waiting)) == [b"1"]


async def test_a_group_that_begins_at_now_gets_what_comes_later(broker: Broker) -> None:
    await push(broker, "q", b"1")
    waiting = wait_for(broker, "q", group="g", start=StartFrom.NEW)
    await parked(broker, 1)
    await push(broker, "q", b"2")
    assert payloads(await bounded(waiting)) == [b"2"]


async def test_an_auto_ack_leaves_the_rest_to_the_next(broker: Broker) -> None:
    waiting = [wait_for(broker, "q", auto_ack=True, batch=2) for _ in range(3)]
    await parked(broker, 3)
    await broker.push(Push([PushItem("q", b"%d" % n) for n in range(5)]))
    got = [payloads(await bounded(future)) for future in waiting]
    assert got == [[b"0", b"1"], [b"2", b"3"], [b"4"]]


async def test_a_pop_that_is_refused_hands_its_wake_up_on(broker: Broker, watched: Watched) -> None:
    first, second = wait_for(broker, "q"), wait_for(broker, "q")
    await parked(broker, 2)
    failed: list[Pop] = []

    def disturb(name: str, requests: object) -> BaseException | None:
        if name == "pop" and not failed:
            failed.append(requests[0])  # type: ignore[index]
            return ValueError("the test's own")
        return None

    watched.disturb = disturb
    await push(broker, "q", b"1")
    with pytest.raises(ValueError, match="the test's own"):
        await bounded(first)
    assert payloads(await bounded(second)) == [b"1"]


async def test_who_is_parked_stays_so_while_the_store_is_away(
    broker: Broker, watched: Watched, clock: ManualClock
) -> None:
    await broker.configure("w", kind=WORK)
    await push(broker, "w", b"1", delay_seconds=5.0)
    waiting = wait_for(broker, "w", 60)
    await parked(broker, 1)
    watched.is_down = True
    # Something falls due and nobody can look.
    clock.advance(5.01)
    await until(lambda: broker.state == "store_down")
    await turns(50)
    assert not waiting.done()
    watched.is_down = False

    def is_served() -> bool:
        clock.advance(0.25)
        return waiting.done()

    await until(is_served)
    assert payloads(waiting.result()) == [b"1"]
