"""One call with many kinds of answers: each has its own effect, and errors hurt no other."""

import random

import msgspec
import pytest

from monarq.clock import ManualClock
from monarq.errors import MonarqError
from monarq.model import DEFAULT_GROUP, Ack, Transaction
from monarq.store import Store
from tests.store.calls import ack, ack_all, ack_of, code_of, pop, push_many, seqs
from tests.store.scenarios import (
    COMPLETED,
    DEAD,
    FAILED,
    RELEASE,
    WORK,
    dead_letters,
    group_row,
    seqs_of,
    stats,
)


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
        [attempt] = (await store.get_item(row.id)).history
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
