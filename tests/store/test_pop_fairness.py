"""Whoever waits longest is next: no partition starves, whatever the others do."""

from monarq.clock import ManualClock
from monarq.model import Pop, PushItem
from monarq.store import Store
from tests.store.calls import ack, ack_all, pop, pop_one, push, push_items, push_many, unwrap
from tests.store.scenarios import RELEASE, drain


async def waiting_in_turn(store: Store, clock: ManualClock) -> list[str]:
    """Partitions with a message each, in the order in which they came to wait: neither that of
    their names nor that of their numbers."""
    order = ["m", "z", "a", "k", "b"]
    await push_items(store, *(PushItem("q", b"1", name) for name in sorted(order)))
    await drain(store, "q")
    for partition in order:
        clock.advance(1)
        await push(store, "q", partition=partition)
    return order


async def test_the_partition_that_waits_longest_is_next_whatever_its_name_or_number(
    store: Store, clock: ManualClock
) -> None:
    order = await waiting_in_turn(store, clock)
    assert [(await pop_one(store, "q"))[0].partition for _ in order] == order


async def test_requests_of_one_call_take_what_waits_longest_and_keep_it(
    store: Store, clock: ManualClock
) -> None:
    order = await waiting_in_turn(store, clock)
    answers = [unwrap([each]) for each in await store.pop([Pop(queue="q")] * 3)]
    assert [answer.messages[0].partition for answer in answers] == order[:3]
    others = [unwrap([each]) for each in await store.pop([Pop(queue="q")] * 4)]
    got = [message.partition for answer in others for message in answer.messages]
    assert got == order[3:]
    for answer in answers:
        assert (await ack_all(store, answer)).count == 1


async def test_partitions_that_wait_equally_long_are_served_in_the_order_of_their_numbers(
    store: Store,
) -> None:
    for partition in ("c", "a", "b"):
        await push(store, "q", partition=partition)
    assert [(await pop_one(store, "q"))[0].partition for _ in range(3)] == ["c", "a", "b"]


async def test_a_later_push_does_not_send_a_waiting_partition_to_the_back(
    store: Store, clock: ManualClock
) -> None:
    await push(store, "q", partition="first")
    clock.advance(1)
    await push(store, "q", partition="second")
    clock.advance(1)
    await push(store, "q", partition="first")
    assert (await pop_one(store, "q"))[0].partition == "first"


async def test_a_partition_that_was_served_goes_behind_those_that_wait(
    store: Store, clock: ManualClock
) -> None:
    for partition in "abc":
        await push_many(store, "q", 3, partition=partition)
        clock.advance(1)
    served = []
    for _ in range(9):
        message, lease = await pop_one(store, "q")
        clock.advance(1)
        await ack(store, message, lease)
        served.append(message.partition)
    assert "".join(served) == "abcabcabc"


async def test_a_released_partition_goes_behind_those_that_wait_too(
    store: Store, clock: ManualClock
) -> None:
    await push(store, "q", partition="a")
    clock.advance(1)
    await push(store, "q", partition="b")
    message, lease = await pop_one(store, "q")
    assert message.partition == "a"
    clock.advance(1)
    await ack(store, message, lease, RELEASE)
    assert [(await pop_one(store, "q"))[0].partition for _ in range(2)] == ["b", "a"]


async def test_an_expired_partition_waits_from_its_deadline_on(
    store: Store, clock: ManualClock
) -> None:
    await push(store, "q", partition="expires")
    await pop(store, "q", lease_seconds=10)
    clock.advance(9)
    await push(store, "q", partition="before")
    clock.advance(2)
    await push(store, "q", partition="after")
    order = [(await pop_one(store, "q"))[0].partition for _ in range(3)]
    assert order == ["before", "expires", "after"]


async def test_a_quiet_partition_is_not_starved_by_ones_that_never_run_dry(
    store: Store, clock: ManualClock
) -> None:
    for partition in ("busy1", "busy2"):
        await push_many(store, "q", 5, partition=partition)
    clock.advance(1)
    await push(store, "q", partition="quiet")
    served = []
    for _ in range(6):
        message, lease = await pop_one(store, "q")
        clock.advance(1)
        await ack(store, message, lease)
        await push(store, "q", partition=message.partition)
        served.append(message.partition)
    assert served == ["busy1", "busy2", "quiet"] * 2


async def test_every_one_of_many_partitions_is_served_before_any_is_served_twice(
    store: Store, clock: ManualClock
) -> None:
    names = {f"p{n}" for n in range(40)}
    await push_items(store, *(PushItem("q", b"1", name) for name in names for _ in range(2)))
    for _ in range(2):
        served = set()
        for _ in range(40):
            message, lease = await pop_one(store, "q")
            clock.advance(0.001)
            await ack(store, message, lease)
            served.add(message.partition)
        assert served == names
