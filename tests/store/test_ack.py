"""Acks in and out of order, in part and whole: what was acked never comes back, the rest does."""

import random

import pytest

from monarq.clock import ManualClock
from monarq.errors import MonarqError
from monarq.model import DEFAULT_GROUP, Ack
from monarq.store import Store
from tests.store.calls import ack, ack_all, ack_of, code_of, pop, push, push_many, seqs
from tests.store.scenarios import (
    COMPLETED,
    DEAD,
    FAILED,
    RELEASE,
    cursor_row,
    dead_letters,
    drain,
    group_row,
    numbers,
    seqs_of,
    stats,
)

pytestmark = pytest.mark.smoke


async def test_when_all_are_acked_the_lease_ends_at_once_and_the_cursor_has_moved(
    store: Store,
) -> None:
    await push_many(store, "q", 4)
    popped = await pop(store, "q", 3)
    for n, message in enumerate(popped.messages):
        acked = await ack(store, message, popped.lease_id)
        assert (acked.queue, acked.partition) == ("q", "Default")
        assert (acked.transaction_id, acked.count, acked.dead) == (message.transaction_id, 1, 0)
        assert acked.lease_released is (n == 2)
    cursor = await cursor_row(store, "q", DEFAULT_GROUP)
    assert (cursor.position, cursor.last_seq, cursor.lag, cursor.lease_until) == (3, 4, 1, None)
    assert await seqs(store, "q") == [4]


@pytest.mark.parametrize("order", [(3, 2, 1), (2, 3, 1), (1, 3, 2), (3, 1, 2)])
async def test_acks_in_any_order_end_the_lease_when_the_last_is_in(
    store: Store, order: tuple[int, ...]
) -> None:
    await push_many(store, "q", 4)
    popped = await pop(store, "q", 3)
    for n in order[:-1]:
        assert not (await ack(store, popped.messages[n - 1], popped.lease_id)).lease_released
        assert (await pop(store, "q")).messages == []
    assert (await ack(store, popped.messages[order[-1] - 1], popped.lease_id)).lease_released
    assert await seqs(store, "q") == [4]


async def test_acked_ones_never_come_back_after_an_expiry_and_the_others_do_in_order(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 8)
    popped = await pop(store, "q", 6, lease_seconds=10)
    for n in (2, 5, 3):
        await ack(store, popped.messages[n - 1], popped.lease_id)
    clock.advance(10)
    for expected in ([1], [4], [6], [7, 8]):
        again = await pop(store, "q", 100)
        assert seqs_of(again) == expected
        assert {message.attempts for message in again.messages} == {1}
        await ack_all(store, again)
    assert (await group_row(store, "q", DEFAULT_GROUP)).lag == 0


async def test_acked_ones_stay_acked_over_many_expiries_with_a_partial_ack_each(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retryLimit": 100})
    await push_many(store, "q", 20)
    chance = random.Random(3)
    left = set(range(1, 21))
    for _ in range(80):
        popped = await pop(store, "q", 100, lease_seconds=5)
        seqs = seqs_of(popped)
        assert seqs == sorted(left)[: len(seqs)]
        if not left:
            break
        for n in chance.sample(seqs, min(len(seqs), chance.randrange(0, 3))):
            await ack(store, popped.messages[seqs_of(popped).index(n)], popped.lease_id)
            left.remove(n)
        clock.advance(5)
    assert left == set()
    assert await dead_letters(store) == []


async def test_acking_two_of_three_does_not_drop_the_third(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 3)
    popped = await pop(store, "q", 3, lease_seconds=10)
    await ack(store, popped.messages[1], popped.lease_id)
    await ack(store, popped.messages[2], popped.lease_id)
    clock.advance(10)
    assert await seqs(store, "q") == [1]


async def test_a_lease_id_alone_answers_what_has_no_answer_yet(store: Store) -> None:
    await push_many(store, "q", 5)
    popped = await pop(store, "q", 5)
    await ack(store, popped.messages[1], popped.lease_id, FAILED, error="mine")
    await ack(store, popped.messages[3], popped.lease_id)
    acked = await ack_all(store, popped)
    assert (acked.count, acked.lease_released) == (3, True)
    assert (await group_row(store, "q", DEFAULT_GROUP)).completed == 4
    assert (await group_row(store, "q", DEFAULT_GROUP)).failed == 1


async def test_a_whole_batch_of_acks_in_one_call_is_answered_one_by_one(store: Store) -> None:
    await push_many(store, "q", 4)
    popped = await pop(store, "q", 4)
    lease = popped.lease_id
    outcomes = await store.ack([ack_of(message, lease) for message in popped.messages])
    released = []
    for outcome in outcomes:
        assert not isinstance(outcome, MonarqError)
        released.append(outcome.lease_released)
    assert released == [False, False, False, True]


async def test_acks_of_one_call_are_carried_out_in_order_and_errors_hurt_no_other(
    store: Store,
) -> None:
    await push_many(store, "q", 3)
    popped = await pop(store, "q", 2)
    first, second = popped.messages
    lease = popped.lease_id
    outcomes = await store.ack(
        [
            ack_of(first, lease),
            ack_of(first, lease, FAILED),
            Ack(transaction_id="none", partition_id=first.partition_id, lease_id=lease),
            Ack(transaction_id="a", partition_id=None, lease_id=lease),
            ack_of(second, "1-0000000000000000"),
            ack_of(second, lease),
            ack_of(second, lease),
            Ack(lease_id=lease),
        ]
    )
    codes = [code_of(outcome) for outcome in outcomes]
    assert codes[:4] == [None, "already_acked", "not_found", "invalid_request"]
    assert codes[4] in ("lease_unknown", "lease_taken_over")
    assert codes[5:] == [None, "already_acked", "lease_unknown"]
    assert await seqs(store, "q") == [3]


async def test_two_leases_of_two_groups_are_acked_in_one_call(store: Store) -> None:
    await push_many(store, "q", 2)
    one, two = await pop(store, "q", 2, group="g1"), await pop(store, "q", 2, group="g2")
    requests = [
        ack_of(message, popped.lease_id, group=group)
        for popped, group in ((one, "g1"), (two, "g2"))
        for message in popped.messages
    ]
    outcomes = await store.ack([requests[n] for n in (0, 2, 3, 1)])
    assert [code_of(outcome) for outcome in outcomes] == [None] * 4
    for group in ("g1", "g2"):
        assert (await group_row(store, "q", group)).lag == 0


async def test_an_ack_without_a_lease_id_answers_a_message_under_a_live_lease(
    store: Store,
) -> None:
    await push_many(store, "q", 2)
    popped = await pop(store, "q", 2)
    assert not (await ack(store, popped.messages[1], None)).lease_released
    assert (await ack(store, popped.messages[0], None)).lease_released
    assert await drain(store, "q") == []


async def test_completed_failed_completed_blocks_at_the_failed_one_alone(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retryDelay": 2000})
    await push_many(store, "q", 5)
    popped = await pop(store, "q", 3)
    for message, status in zip(popped.messages, (COMPLETED, FAILED, COMPLETED), strict=True):
        await ack(store, message, popped.lease_id, status)
    assert (await pop(store, "q", 10)).messages == []
    clock.advance(2)
    assert await seqs(store, "q") == [2, 4, 5]


async def test_answers_of_every_kind_under_one_lease_each_have_their_own_effect(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retryDelay": 1000})
    await push_many(store, "q", 5)
    popped = await pop(store, "q", 5)
    for message, status in zip(
        popped.messages, (RELEASE, COMPLETED, DEAD, FAILED, COMPLETED), strict=True
    ):
        acked = await ack(store, message, popped.lease_id, status, error="because")
        assert acked.dead == (status is DEAD)
    assert [letter.seq for letter in await dead_letters(store)] == [3]
    now = await pop(store, "q", 10)
    assert [(m.seq, m.attempts) for m in now.messages] == [(1, 1)]
    await ack_all(store, now)
    assert (await pop(store, "q", 10)).messages == []
    clock.advance(1)
    later = await pop(store, "q", 10)
    assert [(m.seq, m.attempts) for m in later.messages] == [(4, 2)]
    await ack_all(store, later)
    numbers_now = await stats(store, "q")
    assert (numbers_now.pending, numbers_now.dead, numbers_now.completed) == (0, 1, 4)


async def test_messages_pushed_while_a_lease_runs_come_after_it_and_not_into_it(
    store: Store,
) -> None:
    await push_many(store, "q", 2)
    popped = await pop(store, "q", 10)
    await push_many(store, "q", 2)
    assert (await ack_all(store, popped)).count == 2
    assert numbers(await drain(store, "q")) == [1, 2]
    assert (await push(store, "q")).seq == 5
