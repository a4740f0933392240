"""Fencing of items: as of messages, with the item in place of partition and group."""

import asyncio

import pytest

from monarq.clock import ManualClock
from monarq.ids import parse_lease_id
from monarq.model import Ack, AckStatus
from monarq.store import Store
from tests.store.calls import (
    ack,
    ack_all,
    ack_of,
    code_of,
    next_items,
    pop,
    pop_one,
    push,
    push_many,
    renew,
)
from tests.store.conftest import OpenStore
from tests.store.refusals import check_refused, error_of, wrong_token
from tests.store.scenarios import (
    COMPLETED,
    DEAD,
    FAILED,
    RELEASE,
    RETRY,
    WORK,
    let_time_work,
    nothing_changes,
    stats,
)


async def work_queue(store: Store, count: int) -> None:
    await store.configure("w", kind=WORK, options={"maxAttempts": 10})
    await push_many(store, "w", count)


async def test_an_items_lease_past_its_deadline_is_expired_settled_or_not(
    store: Store, clock: ManualClock
) -> None:
    await work_queue(store, 1)
    item, lease = await pop_one(store, "w", lease_seconds=10)
    clock.advance(10)
    await check_refused(store, item, lease, "lease_expired")
    await let_time_work(store)
    await check_refused(store, item, lease, "lease_expired")
    await check_refused(store, item, None, "lease_expired")


async def test_an_items_lease_that_was_taken_over_is_refused_as_such(
    store: Store, clock: ManualClock
) -> None:
    await work_queue(store, 1)
    old, old_lease = await pop_one(store, "w", lease_seconds=10)
    clock.advance(10)
    new, new_lease = await pop_one(store, "w")
    assert (new.id, new.attempts) == (old.id, 2)
    await check_refused(store, old, old_lease, "lease_taken_over")
    await ack(store, new, new_lease)
    await check_refused(store, old, old_lease, "lease_taken_over")


@pytest.mark.parametrize("status", [COMPLETED, FAILED, RETRY, RELEASE, DEAD])
async def test_an_item_answered_once_was_acked_already(store: Store, status: AckStatus) -> None:
    await work_queue(store, 1)
    item, lease = await pop_one(store, "w")
    await ack(store, item, lease, status)
    await check_refused(store, item, lease, "already_acked")


@pytest.mark.parametrize("status", [FAILED, RETRY, RELEASE])
async def test_an_item_answered_and_then_cancelled_was_acked_already(
    store: Store, status: AckStatus
) -> None:
    await work_queue(store, 1)
    item, lease = await pop_one(store, "w")
    await ack(store, item, lease, status)
    await store.cancel_item(item.id)
    await check_refused(store, item, lease, "already_acked")


async def test_a_live_lease_of_another_item_is_foreign_and_so_are_those_of_the_other_kind(
    store: Store,
) -> None:
    await work_queue(store, 2)
    await push(store, "q")
    one, lease_one = await pop_one(store, "w")
    two, lease_two = await pop_one(store, "w")
    message, lease = await pop_one(store, "q")
    await check_refused(store, one, lease_two, "lease_foreign")
    await check_refused(store, two, lease, "lease_foreign")
    await check_refused(store, message, lease_one, "lease_foreign")
    await ack(store, one, lease_one)
    await ack(store, two, lease_two)
    await ack(store, message, lease)


async def test_items_under_one_lease_are_answered_one_by_one_and_fenced_one_by_one(
    store: Store, clock: ManualClock
) -> None:
    await work_queue(store, 3)
    popped = await pop(store, "w", 3, lease_seconds=10)
    assert popped.lease_id
    first, second, third = popped.messages
    assert (await ack(store, second, popped.lease_id)).lease_released
    await check_refused(store, second, popped.lease_id, "already_acked")
    await ack(store, first, popped.lease_id, RELEASE)
    again, again_lease = await pop_one(store, "w")
    assert again.id == first.id
    await check_refused(store, first, popped.lease_id, "lease_foreign")
    await renew(store, popped.lease_id, 60)
    clock.advance(59)
    assert (await ack(store, third, popped.lease_id)).lease_released
    await check_refused(store, first, popped.lease_id, "lease_taken_over")
    await ack(store, again, again_lease)


async def test_acks_of_items_in_one_call_are_fenced_in_their_order(store: Store) -> None:
    await work_queue(store, 3)
    (first, _), (second, _), (third, lease) = [await pop_one(store, "w") for _ in range(3)]
    answers = await store.ack(
        [
            Ack(transaction_id=item.id, partition_id=item.partition_id, lease_id=lease)
            for item in (first, third, second)
        ]
    )
    assert [code_of(answer) for answer in answers] == ["lease_foreign", None, "lease_unknown"]


@pytest.mark.parametrize("is_on_item", [False, True])
async def test_acks_of_messages_and_items_in_one_call_are_fenced_in_their_order(
    store: Store, is_on_item: bool
) -> None:
    await work_queue(store, 2)
    for partition in "ab":
        await push(store, "q", partition=partition)
    (item, on_item), (other_item, _) = [await pop_one(store, "w") for _ in range(2)]
    (message, on_message), (other, _) = [await pop_one(store, "q") for _ in range(2)]
    lease, targets, then = (
        (on_item, (message, item, other), "lease_taken_over")
        if is_on_item
        else (on_message, (item, message, other_item), "lease_unknown")
    )
    answers = await store.ack(
        [Ack(transaction_id=t.id, partition_id=t.partition_id, lease_id=lease) for t in targets]
    )
    assert [code_of(answer) for answer in answers] == ["lease_foreign", None, then]


async def test_a_made_up_lease_on_an_item_is_unknown(store: Store) -> None:
    await work_queue(store, 1)
    item, lease = await pop_one(store, "w")
    number, token = parse_lease_id(lease)
    for made_up in (wrong_token(lease), f"{number + 1}-{token}", "nonsense"):
        await check_refused(store, item, made_up, "lease_unknown")
    await ack(store, item, lease)


async def test_an_item_that_is_not_there_is_not_found(store: Store) -> None:
    await work_queue(store, 1)
    item, lease = await pop_one(store, "w")
    for transaction_id in ("none", f"{item.partition_id}-99"):
        request = Ack(transaction_id=transaction_id, partition_id=item.partition_id, lease_id=lease)
        async with nothing_changes(store):
            [outcome] = await store.ack([request])
            assert code_of(outcome) == "not_found"


async def test_an_items_lease_ended_by_cancel_is_expired(store: Store) -> None:
    await work_queue(store, 1)
    item, lease = await pop_one(store, "w")
    await store.cancel_item(item.id)
    await check_refused(store, item, lease, "lease_expired")
    assert await error_of(renew(store, lease, 60)) == "lease_unknown"


async def test_an_item_that_was_never_leased_cannot_be_answered(store: Store) -> None:
    await work_queue(store, 2)
    _, lease = await pop_one(store, "w")
    [waiting] = await next_items(store, "w")
    async with nothing_changes(store):
        for bearer, code in ((lease, "lease_foreign"), (None, "lease_expired")):
            request = ack_of(waiting, bearer)
            [outcome] = await store.ack([request])
            assert code_of(outcome) == code


async def test_an_items_lease_id_alone_answers_all_and_is_unknown_after(store: Store) -> None:
    await work_queue(store, 3)
    popped = await pop(store, "w", 3)
    await ack(store, popped.messages[0], popped.lease_id)
    acked = await ack_all(store, popped)
    assert (acked.count, acked.lease_released) == (2, True)
    async with nothing_changes(store):
        assert await error_of(ack_all(store, popped)) == "lease_unknown"


async def test_an_item_leased_twice_by_two_stores_is_completed_once(
    store: Store, open_another: OpenStore, clock: ManualClock
) -> None:
    other = await open_another()
    await work_queue(store, 4)
    for _ in range(4):
        old, old_lease = await pop_one(store, "w", lease_seconds=10)
        clock.advance(10)
        new, new_lease = await pop_one(other, "w")
        outcomes = await asyncio.gather(
            ack(store, old, old_lease), ack(other, new, new_lease), return_exceptions=True
        )
        assert [code_of(outcome) for outcome in outcomes] == ["lease_taken_over", None]  # type: ignore[arg-type]
    assert (await stats(store, "w")).states["done"] == 4
