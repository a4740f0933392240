"""Leases of messages that expire: nothing waits for ever, and no message dies for another one."""

import pytest

from monarq.clock import ManualClock
from monarq.model import DEFAULT_GROUP, AckStatus
from monarq.store import Store
from tests.store.calls import ack, ack_all, pop, pop_one, push, seqs
from tests.store.scenarios import (
    DEAD,
    FAILED,
    cursor_row,
    dead_letters,
    let_time_work,
    ordered,
    stats,
)


@pytest.mark.parametrize("last", [FAILED, DEAD], ids=str)
async def test_a_message_that_dies_without_a_word_keeps_its_last_error(
    store: Store, clock: ManualClock, last: AckStatus
) -> None:
    await ordered(store, 0, retryLimit=2, retryDelay=0, leaseTime=10)
    for seconds, error in ((0, "said"), (10, "the lease expired without an answer")):
        await push(store, "q")
        message, lease = await pop_one(store, "q")
        await ack(store, message, lease, FAILED, error="said")
        message, lease = await pop_one(store, "q")
        clock.advance(seconds)
        if not seconds:
            await ack(store, message, lease, FAILED)
        message, lease = await pop_one(store, "q")
        await ack(store, message, lease, last)
        assert (await dead_letters(store))[0].error == error


async def test_an_expired_lease_counts_as_a_delivery_and_a_consumer_killer_ends_dead(
    store: Store, clock: ManualClock
) -> None:
    await ordered(store, retryLimit=2, leaseTime=10)
    for attempt in (1, 2, 3):
        message, _ = await pop_one(store, "q")
        assert (message.seq, message.attempts) == (1, attempt)
        clock.advance(10)
    assert await seqs(store, "q") == [2, 3]
    [letter] = await dead_letters(store)
    assert (letter.seq, letter.attempts) == (1, 3)
    assert letter.error


async def test_expiries_and_failures_count_together(store: Store, clock: ManualClock) -> None:
    await ordered(store, retryLimit=2, retryDelay=0, leaseTime=10)
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, FAILED)
    await pop(store, "q")
    clock.advance(10)
    message, lease = await pop_one(store, "q")
    assert message.attempts == 3
    assert (await ack(store, message, lease, FAILED, error="third")).dead == 1


async def test_an_expiry_over_several_messages_kills_none_that_is_out_of_retries(
    store: Store, clock: ManualClock
) -> None:
    await ordered(store, 4, retryLimit=1, retryDelay=0, leaseTime=10)
    popped = await pop(store, "q", 2)
    await ack_all(store, popped, FAILED)
    popped = await pop(store, "q", 4)
    assert [m.attempts for m in popped.messages] == [2, 2, 1, 1]
    await ack(store, popped.messages[1], popped.lease_id)
    clock.advance(10)
    popped = await pop(store, "q", 4)
    assert [(m.seq, m.attempts) for m in popped.messages] == [(1, 2)]
    clock.advance(10)
    popped = await pop(store, "q", 4)
    assert [(m.seq, m.attempts) for m in popped.messages] == [(3, 1)]
    assert [letter.seq for letter in await dead_letters(store)] == [1]


async def test_the_lifecycle_settles_an_expiry_once_and_as_a_pop_would(
    store: Store, clock: ManualClock
) -> None:
    await ordered(store, 3, retryLimit=1, leaseTime=10)
    deadline = (await pop(store, "q")).lease_until
    clock.advance(25)
    reports = await let_time_work(store)
    assert sum(report.expired for report in reports) >= 1
    assert "q" in [name for report in reports for name in report.wake]
    cursor = await cursor_row(store, "q", DEFAULT_GROUP)
    assert (cursor.lease_until, cursor.available_at) == (None, deadline)
    await let_time_work(store)
    popped = await pop(store, "q", 3)
    assert [(m.seq, m.attempts) for m in popped.messages] == [(1, 2)]


async def test_the_lifecycle_buries_what_an_expiry_killed_though_nobody_pops(
    store: Store, clock: ManualClock
) -> None:
    await ordered(store, 2, retryLimit=0, leaseTime=10)
    await pop(store, "q", 1)
    clock.advance(10)
    await let_time_work(store)
    assert [letter.seq for letter in await dead_letters(store)] == [1]
    assert (await stats(store, "q")).pending == 1


async def test_an_expiry_waits_for_no_retry_delay(store: Store, clock: ManualClock) -> None:
    await ordered(store, retryDelay=60_000, leaseTime=10)
    await pop(store, "q")
    clock.advance(10)
    assert await seqs(store, "q") == [1]


async def test_a_failure_answered_before_the_expiry_keeps_its_own_retry_time(
    store: Store, clock: ManualClock
) -> None:
    await ordered(store, 4, retryDelay=30_000, leaseTime=10)
    popped = await pop(store, "q", 3)
    await ack(store, popped.messages[1], popped.lease_id, FAILED)
    clock.advance(10)
    popped = await pop(store, "q", 10)
    assert [(m.seq, m.attempts) for m in popped.messages] == [(1, 1)]
    await ack_all(store, popped)
    clock.advance(20)
    for expected in ([(2, 2)], [(3, 1)], [(4, 1)]):
        popped = await pop(store, "q", 10)
        assert [(m.seq, m.attempts) for m in popped.messages] == expected
        await ack_all(store, popped)
