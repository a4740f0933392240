"""Acks in and out of order, in part and whole: what was acked never comes back, the rest does."""

import random

import msgspec
import pytest

from monarq.clock import ManualClock
from monarq.errors import MonarqError
from monarq.model import DEFAULT_GROUP, Ack, Transaction
from monarq.store import Store
from tests.store.calls import ack, ack_all, ack_of, code_of, pop, push, push_many, seqs
from tests.store.scenarios import (
    COMPLETED,
    DEAD,
    FAILED,
    RELEASE,
    WORK,
    cursor_row,
    dead_letters,
    drain,
    group_row,
    numbers,
    seqs_of,
    stats,
)


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
    again = await pop(store, "q", 100)
    assert seqs_of(again) == [1, 4, 6, 7, 8]
    assert [message.attempts for message in again.messages] == [2, 2, 2, 1, 1]
    await ack_all(store, again)
    assert (await group_row(store, "q", DEFAULT_GROUP)).lag == 0


async def test_acked_ones_stay_acked_over_many_expiries_with_a_partial_ack_each(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retryLimit": 100})
    await push_many(store, "q", 20)
    chance = random.Random(3)
    left = set(range(1, 21))
    for _ in range(40):
        popped = await pop(store, "q", 100, lease_seconds=5)
        assert seqs_of(popped) == sorted(left)
        if not left:
            break
        for n in chance.sample(sorted(left), min(len(left), chance.randrange(0, 3))):
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


# --- one call, many kinds of answers ---


async def test_completed_failed_completed_in_one_call_each_have_their_own_effect(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retryDelay": 1000})
    await push_many(store, "q", 4)
    popped = await pop(store, "q", 3)
    statuses = (COMPLETED, FAILED, COMPLETED)
    outcomes = await store.ack(
        [
            ack_of(message, popped.lease_id, status)
            for message, status in zip(popped.messages, statuses, strict=True)
        ]
    )
    assert [code_of(outcome) for outcome in outcomes] == [None, None, None]
    assert (await pop(store, "q", 10)).messages == []
    clock.advance(1)
    again = await pop(store, "q", 10)
    assert [(m.seq, m.attempts) for m in again.messages] == [(2, 2), (4, 1)]


@pytest.mark.parametrize("seed", range(6))
async def test_a_call_with_many_answers_does_what_the_same_answers_do_one_by_one(
    store: Store, clock: ManualClock, seed: int
) -> None:
    chance = random.Random(seed)
    for queue in ("together", "apart"):
        await store.configure(queue, options={"retryLimit": 1, "retryDelay": 1000})
        await push_many(store, queue, 8)
    for _ in range(3):
        clock.advance(1)
        together, apart = await pop(store, "together", 6), await pop(store, "apart", 6)
        assert seqs_of(together) == seqs_of(apart)
        order = chance.sample(range(len(together.messages)), len(together.messages))
        if chance.random() < 0.5:
            order.sort()
        statuses = [chance.choice([COMPLETED, COMPLETED, FAILED, DEAD, RELEASE]) for _ in order]
        outcomes = await store.ack(
            [
                ack_of(together.messages[n], together.lease_id, status, error=f"error {n}")
                for n, status in zip(order, statuses, strict=True)
            ]
        )
        for n, status, outcome in zip(order, statuses, outcomes, strict=True):
            assert not isinstance(outcome, MonarqError)
            alone = await ack(store, apart.messages[n], apart.lease_id, status, error=f"error {n}")
            assert (outcome.lease_released, outcome.dead) == (alone.lease_released, alone.dead)
        one, other = await stats(store, "together"), await stats(store, "apart")
        assert (one.completed, one.failed, one.dead, one.pending) == (
            other.completed,
            other.failed,
            other.dead,
            other.pending,
        )
    left = [await pop(store, queue, 10) for queue in ("together", "apart")]
    assert seqs_of(left[0]) == seqs_of(left[1])
    buried = [
        sorted((letter.seq, letter.error) for letter in await dead_letters(store, queue=queue))
        for queue in ("together", "apart")
    ]
    assert buried[0] == buried[1]


async def test_a_call_with_the_next_messages_of_a_lease_one_of_them_not_completed(
    store: Store,
) -> None:
    """In order and by made-up ids, as the quickest way through: every place, every status."""
    for place in range(4):
        for status in (FAILED, DEAD, RELEASE):
            queue = f"{place} {status}"
            await store.configure(queue, options={"retryDelay": 0})
            await push_many(store, queue, 4)
            popped = await pop(store, queue, 4)
            outcomes = await store.ack(
                [
                    ack_of(message, popped.lease_id, status if n == place else COMPLETED)
                    for n, message in enumerate(popped.messages)
                ]
            )
            assert [code_of(outcome) for outcome in outcomes] == [None] * 4
            expected = [] if status is DEAD else [place + 1]
            assert await seqs(store, queue) == expected
            assert (await stats(store, queue)).completed == 3


async def test_a_call_with_a_foreign_lease_or_group_among_good_ones_refuses_that_one_alone(
    store: Store,
) -> None:
    await push_many(store, "q", 4)
    popped = await pop(store, "q", 4)
    await pop(store, "q", 4, group="other")
    good = [ack_of(message, popped.lease_id) for message in popped.messages]
    bad_lease = ack_of(popped.messages[1], "99999-0123456789abcdef")
    bad_group = msgspec.structs.replace(good[2], group="other")
    outcomes = await store.ack([good[0], bad_lease, bad_group, good[3]])
    assert [code_of(outcome) for outcome in outcomes] == [
        None,
        "lease_unknown",
        "lease_foreign",
        None,
    ]
    assert (await ack_all(store, popped)).count == 2


async def test_items_answered_differently_in_one_call_each_have_their_own_effect(
    store: Store,
) -> None:
    await store.configure("w", kind=WORK)
    await push_many(store, "w", 6)
    popped = await pop(store, "w", 5)
    statuses = [COMPLETED, FAILED, RELEASE, DEAD, COMPLETED]
    outcomes = await store.ack(
        [
            msgspec.structs.replace(
                ack_of(message, popped.lease_id, status, error=f"error {message.seq}"),
                result=b"%d" % message.seq,
            )
            for message, status in zip(popped.messages, statuses, strict=True)
        ]
    )
    assert [code_of(outcome) for outcome in outcomes] == [None] * 5
    rows = (await store.list_items("w")).rows
    assert [row.state for row in rows] == ["done", "scheduled", "ready", "dead", "done", "ready"]
    for row in (rows[0], rows[1], rows[3], rows[4]):
        [attempt] = await store.item_attempts(row.id)
        assert attempt.result == b"%d" % row.seq
    assert [row.attempts for row in rows] == [1, 1, 0, 1, 1, 0]


async def test_an_ack_of_what_is_not_there_fails_alone_among_many(store: Store) -> None:
    await push_many(store, "q", 3)
    popped = await pop(store, "q", batch=3)
    ids = [message.transaction_id for message in popped.messages]
    acks = [
        Ack(transaction_id=name, partition_id=popped.messages[0].partition_id,
            lease_id=popped.lease_id)
        for name in (ids[0], "no such message", ids[1])
    ]  # fmt: skip
    outcomes = await store.ack(acks)
    assert [code_of(outcome) for outcome in outcomes] == [None, "not_found", None]
    [done] = await store.transaction([Transaction([acks[1]])])
    assert code_of(done) == "transaction_failed"
    mixed = Transaction([Ack(transaction_id=ids[2], partition_id=acks[0].partition_id,
                             lease_id=popped.lease_id), acks[1]])  # fmt: skip
    [failed] = await store.transaction([mixed])
    assert code_of(failed) == "transaction_failed"
    assert (await stats(store, "q")).completed == 2


async def test_a_lease_that_is_answered_twice_in_one_call_is_answered_by_the_first(
    store: Store,
) -> None:
    for partition in ("a", "b", "c"):
        await push_many(store, "q", 2, partition=partition)
    wide = await pop(store, "q", 4, partitions=2)
    other = await pop(store, "q", 2)
    leases = [wide.lease_id, other.lease_id, wide.lease_id, other.lease_id]
    answers = await store.ack([Ack(lease_id=lease) for lease in leases])
    assert [code_of(answer) for answer in answers[2:]] == ["lease_unknown", "lease_unknown"]
    assert [getattr(answer, "count", None) for answer in answers[:2]] == [4, 2]
    assert (await group_row(store, "q", DEFAULT_GROUP)).lag == 0


async def test_leases_that_are_answered_alike_and_differently_in_one_call_get_their_own_answer(
    store: Store, clock: ManualClock
) -> None:
    for partition in ("a", "b", "c"):
        await push_many(store, "q", 1, partition=partition)
    popped = [await pop(store, "q") for _ in range(3)]
    statuses = (FAILED, COMPLETED, FAILED)
    errors = (None, None, "broken")
    good = await store.ack(
        [
            Ack(lease_id=each.lease_id, status=status, error=error)
            for each, status, error in zip(popped, statuses, errors, strict=True)
        ]
    )
    assert [getattr(answer, "count", None) for answer in good] == [1, 1, 1]
    clock.advance(3600)
    again = [await pop(store, "q") for _ in range(2)]
    assert sorted(each.messages[0].partition for each in again) == ["a", "c"]
    assert (await pop(store, "q")).messages == []
    await store.ack([Ack(lease_id=each.lease_id, status=DEAD, error="given up") for each in again])
    letters = await dead_letters(store, queue="q")
    assert sorted((letter.partition, letter.error) for letter in letters) == [
        ("a", "given up"),
        ("c", "given up"),
    ]
