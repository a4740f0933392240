"""Acks of a lease's messages given one by one, as clients give them: the same as each alone, where
they are in order and where not, whoever popped them."""

import pytest
from msgspec import structs

from monarq.clock import SECOND, ManualClock
from monarq.model import Ack, AckStatus, PushItem
from monarq.store import Store
from tests.store.calls import ack_of, code_of, pop, push_items, seqs
from tests.store.conftest import OpenStore
from tests.store.scenarios import numbers, stats


async def push_named(store: Store, partition: str, count: int, *, every: int = 1) -> None:
    """Several requests, so that a lease covers more than one segment."""
    for first in range(1, count + 1, 4):
        items = [
            PushItem("q", b"%d" % n, partition, f"{partition}/{n}" if n % every == 0 else None)
            for n in range(first, min(first + 4, count + 1))
        ]
        await push_items(store, *items)


async def acks_of(store: Store, partition: str, batch: int = 100) -> list[Ack]:
    popped = await pop(store, "q", batch, partition=partition)
    return [ack_of(message, popped.lease_id) for message in popped.messages]


@pytest.mark.parametrize("every", [1, 2, 100])
async def test_all_of_a_lease_one_by_one(store: Store, every: int) -> None:
    await push_named(store, "p", 10, every=every)
    acks = await acks_of(store, "p")
    answers = await store.ack(acks)
    assert [code_of(answer) for answer in answers] == [None] * 10
    assert [answer.transaction_id for answer in answers] == [a.transaction_id for a in acks]  # type: ignore[union-attr]
    assert [answer.lease_released for answer in answers] == [False] * 9 + [True]  # type: ignore[union-attr]
    assert (await stats(store, "q")).completed == 10
    again = await store.ack(acks)
    assert {code_of(answer) for answer in again} == {"already_acked"}


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize("lanes", [1, 2])
async def test_what_was_not_delivered_is_not_acked_with_what_was(
    store: Store, names: bool, lanes: int
) -> None:
    calls = []
    for partition in ("a", "b")[:lanes]:
        await push_named(store, partition, 3, every=1 if names else 100)
        first, second = await acks_of(store, partition, 2)
        name = f"{partition}/3" if names else f"{first.partition_id}-3"
        calls += [first, second, structs.replace(first, transaction_id=name)]
    answers = await store.ack(calls)
    assert [code_of(answer) for answer in answers] == [None, None, "already_acked"] * lanes
    assert numbers(await pop(store, "q", 10, partitions=2)) == [3] * lanes


async def test_the_rest_of_a_lease_does_not_take_what_is_behind_it(store: Store) -> None:
    await push_named(store, "p", 4, every=100)
    first, second, third = await acks_of(store, "p", 3)
    fourth = structs.replace(first, transaction_id=f"{first.partition_id}-4")
    assert [code_of(answer) for answer in await store.ack([first])] == [None]
    answers = await store.ack([second, fourth])
    assert [code_of(answer) for answer in answers] == [None, "not_in_lease"]
    assert [code_of(answer) for answer in await store.ack([third, fourth])] == [
        None,
        "already_acked",
    ]
    assert numbers(await pop(store, "q", 10)) == [4]


async def test_what_another_store_popped_is_acked_by_its_ids(
    store: Store, open_another: OpenStore
) -> None:
    other = await open_another()
    await push_named(store, "p", 10)
    answers = await other.ack(await acks_of(store, "p"))
    assert [code_of(answer) for answer in answers] == [None] * 10
    assert answers[-1].lease_released  # type: ignore[union-attr]
    assert not (await pop(store, "q", 10)).messages


async def test_several_leases_in_one_call_are_answered_in_the_order_given(store: Store) -> None:
    for partition in ("c", "a", "b"):
        await push_named(store, partition, 6)
    calls = [await acks_of(store, partition, 5) for partition in ("c", "a", "b")]
    acks = [ack for call in calls for ack in call]
    answers = await store.ack(acks)
    assert [answer.partition for answer in answers] == ["c"] * 5 + ["a"] * 5 + ["b"] * 5  # type: ignore[union-attr]
    assert [answer.lease_released for answer in answers] == ([False] * 4 + [True]) * 3  # type: ignore[union-attr]
    assert numbers(await pop(store, "q", 10, partitions=3)) == [6, 6, 6]


async def test_some_of_a_lease_then_the_rest(store: Store) -> None:
    await push_named(store, "p", 8)
    acks = await acks_of(store, "p")
    for part, ends in ((acks[:3], False), (acks[5:], False), (acks[3:5], True)):
        answers = await store.ack(part)
        assert [code_of(answer) for answer in answers] == [None] * len(part)
        assert answers[-1].lease_released is ends  # type: ignore[union-attr]
    assert not (await pop(store, "q", 10)).messages


async def test_a_part_that_was_answered_before_fails_alone(store: Store) -> None:
    await push_named(store, "p", 6)
    acks = await acks_of(store, "p")
    await store.ack(acks[1:3])
    answers = await store.ack(acks)
    assert [code_of(answer) for answer in answers] == [
        None,
        "already_acked",
        "already_acked",
        None,
        None,
        None,
    ]
    assert answers[-1].lease_released  # type: ignore[union-attr]


async def test_the_wrong_order_a_repeat_and_another_status_are_as_each_alone(store: Store) -> None:
    await push_named(store, "p", 5)
    acks = await acks_of(store, "p")
    failed = structs.replace(acks[4], status=AckStatus.FAILED)
    answers = await store.ack([acks[1], acks[0], acks[0], acks[2], acks[3], failed])
    assert [code_of(answer) for answer in answers] == [
        None,
        None,
        "already_acked",
        None,
        None,
        None,
    ]
    counted = await stats(store, "q")
    assert (counted.completed, counted.failed) == (4, 1)


async def test_ids_that_are_not_there_and_leases_that_are_not_fail_each(store: Store) -> None:
    await push_named(store, "p", 4)
    acks = await acks_of(store, "p")
    made_up = [
        Ack(transaction_id=f"x{n}", partition_id=one.partition_id, lease_id=one.lease_id)
        for n, one in enumerate(acks)
    ]
    assert {code_of(answer) for answer in await store.ack(made_up)} == {"not_found"}
    no_lease = [structs.replace(one, lease_id="9-" + "0" * 16) for one in acks]
    assert {code_of(answer) for answer in await store.ack(no_lease)} <= {"lease_unknown"}
    assert [code_of(answer) for answer in await store.ack(acks)] == [None] * 4


async def test_what_is_next_under_many_leases_is_judged_for_each_by_itself(
    store: Store, clock: ManualClock
) -> None:
    """All of one lease, the beginning of another, one that ran out, and one of another group, each
    acked in order and all in one call."""
    for partition in "abcd":
        await push_named(store, partition, 3, every=100)
    late = [
        ack_of(message, popped.lease_id)
        for popped in [await pop(store, "q", 3, partition="c", lease_seconds=1)]
        for message in popped.messages
    ]
    clock.advance(2 * SECOND)
    whole, begun = await acks_of(store, "a"), await acks_of(store, "b")
    foreign = [structs.replace(ack, group="other") for ack in await acks_of(store, "d")]
    answers = await store.ack([*late, *foreign, *begun[:2], *whole])
    codes = [code_of(answer) for answer in answers]
    assert codes == ["lease_expired"] * 3 + ["lease_foreign"] * 3 + [None] * 5
    assert [answer.lease_released for answer in answers[6:]] == [False] * 4 + [True]  # type: ignore[union-attr]
    assert (await stats(store, "q")).completed == 5
    rest = await store.ack(begun[2:])
    assert [answer.lease_released for answer in rest] == [True]  # type: ignore[union-attr]
    assert await seqs(store, "q", partition="c") == [1]
    assert await seqs(store, "q", partition="b") == []
