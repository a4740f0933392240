"""Failure on ordered queues: it blocks, waits, is counted, dies, and lets the next ones through."""

import pytest

from monarq.clock import SECOND, ManualClock
from monarq.model import DEFAULT_GROUP, AckStatus
from monarq.store import Store
from tests.store.calls import ack, ack_all, pop, pop_one, push, push_many, seqs
from tests.store.scenarios import (
    COMPLETED,
    DEAD,
    FAILED,
    RELEASE,
    RETRY,
    cursor_row,
    dead_letters,
    drain,
    group_row,
    ordered,
    seqs_of,
    stats,
)


async def test_a_failed_message_blocks_its_partition_until_its_retry_delay_is_over(
    store: Store, clock: ManualClock
) -> None:
    await ordered(store, retryDelay=2500)
    message, lease = await pop_one(store, "q")
    acked = await ack(store, message, lease, FAILED, error="no")
    assert (acked.lease_released, acked.dead) == (True, 0)
    blocked = await pop(store, "q", 10)
    assert (blocked.messages, blocked.next_at) == ([], clock.now() + 2_500_000)
    clock.advance(2.499999)
    assert (await pop(store, "q", 10)).messages == []
    clock.advance(0.000001)
    again = await pop(store, "q", 10)
    assert [(m.seq, m.attempts) for m in again.messages] == [(1, 2), (2, 1), (3, 1)]


async def test_a_failed_message_blocks_its_own_partition_and_group_alone(store: Store) -> None:
    await store.configure("q", options={"retryDelay": 60_000})
    for partition in "ab":
        await push_many(store, "q", 2, partition=partition)
    message, lease = await pop_one(store, "q", partition="a", group="g1")
    await ack(store, message, lease, FAILED, group="g1")
    assert [m.partition for m in await drain(store, "q", group="g1")] == ["b", "b"]
    assert len(await drain(store, "q", group="g2")) == 4


async def test_a_failed_message_in_the_middle_blocks_and_the_acked_ones_never_come_back(
    store: Store, clock: ManualClock
) -> None:
    await ordered(store, 7, retryDelay=1000)
    popped = await pop(store, "q", 5)
    for message, status in zip(
        popped.messages, (COMPLETED, FAILED, COMPLETED, FAILED, COMPLETED), strict=True
    ):
        await ack(store, message, popped.lease_id, status)
    assert (await cursor_row(store, "q", DEFAULT_GROUP)).position == 1
    clock.advance(1)
    again = await pop(store, "q", 10)
    assert [(m.seq, m.attempts) for m in again.messages] == [(2, 2), (4, 2), (6, 1), (7, 1)]


async def test_a_message_dies_when_its_retries_are_used_up_and_lets_the_next_ones_through(
    store: Store, clock: ManualClock
) -> None:
    await ordered(store, retryLimit=2, retryDelay=1000)
    for attempt in (1, 2, 3):
        message, lease = await pop_one(store, "q")
        assert (message.seq, message.attempts) == (1, attempt)
        acked = await ack(store, message, lease, FAILED, error=f"error {attempt}")
        assert acked.dead == (attempt == 3)
        if attempt < 3:
            assert (await pop(store, "q")).messages == []
            clock.advance(1)
    assert await seqs(store, "q") == [2, 3]
    [letter] = await dead_letters(store, queue="q")
    assert (letter.seq, letter.group, letter.attempts, letter.error) == (
        1,
        DEFAULT_GROUP,
        3,
        "error 3",
    )
    assert (letter.payload, letter.partition, letter.failed_at) == (b"1", "Default", clock.now())


async def test_without_retries_the_first_failure_is_the_last(store: Store) -> None:
    await ordered(store, retryLimit=0)
    message, lease = await pop_one(store, "q")
    assert (await ack(store, message, lease, FAILED, error="x")).dead == 1
    assert await seqs(store, "q") == [2, 3]
    [letter] = await dead_letters(store)
    assert letter.attempts == 1


@pytest.mark.parametrize("status", [FAILED, RETRY])
async def test_retry_counts_and_dies_as_failed_does(
    store: Store, clock: ManualClock, status: AckStatus
) -> None:
    await ordered(store, retryLimit=1, retryDelay=1000)
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, status)
    assert (await pop(store, "q")).messages == []
    clock.advance(1)
    message, lease = await pop_one(store, "q")
    assert message.attempts == 2
    assert (await ack(store, message, lease, status)).dead == 1


async def test_retry_at_takes_the_place_of_the_delay(store: Store, clock: ManualClock) -> None:
    await ordered(store, retryDelay=1000)
    message, lease = await pop_one(store, "q")
    at = clock.now() + 30 * SECOND
    await ack(store, message, lease, RETRY, retry_at=at)
    clock.advance(29.999999)
    popped = await pop(store, "q")
    assert (popped.messages, popped.next_at) == ([], at)
    clock.advance(0.000001)
    assert await seqs(store, "q") == [1, 2, 3]


async def test_a_retry_at_in_the_past_means_now(store: Store, clock: ManualClock) -> None:
    await ordered(store, retryDelay=60_000)
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, FAILED, retry_at=clock.now() - 5 * SECOND)
    assert await seqs(store, "q") == [1, 2, 3]


async def test_a_batch_ends_before_a_message_whose_retry_time_has_not_come(
    store: Store, clock: ManualClock
) -> None:
    await ordered(store, 4)
    popped = await pop(store, "q", 3)
    now = clock.now()
    first, second, third = popped.messages
    await ack(store, second, popped.lease_id, RETRY, retry_at=now + 20 * SECOND)
    await ack(store, first, popped.lease_id, RETRY, retry_at=now + 10 * SECOND)
    await ack(store, third, popped.lease_id, RELEASE)
    clock.advance(10)
    early = await pop(store, "q", 10)
    assert seqs_of(early) == [1]
    await ack_all(store, early)
    assert (await pop(store, "q", 10)).next_at == now + 20 * SECOND
    clock.advance(10)
    assert await seqs(store, "q") == [2, 3, 4]


async def test_a_failure_behind_a_released_one_does_not_hold_back_what_is_before_it(
    store: Store,
) -> None:
    await ordered(store, 3, retryDelay=60_000)
    popped = await pop(store, "q", 3)
    for message, status in zip(popped.messages, (RELEASE, RELEASE, FAILED), strict=True):
        await ack(store, message, popped.lease_id, status)
    assert await seqs(store, "q") == [1, 2]


async def test_failing_a_whole_lease_counts_for_each_message_under_it(
    store: Store, clock: ManualClock
) -> None:
    await ordered(store, 3, retryLimit=1, retryDelay=1000)
    popped = await pop(store, "q", 3)
    acked = await ack_all(store, popped, FAILED, error="all")
    assert (acked.count, acked.dead) == (3, 0)
    clock.advance(1)
    popped = await pop(store, "q", 3)
    assert [m.attempts for m in popped.messages] == [2, 2, 2]
    acked = await ack_all(store, popped, FAILED, error="all")
    assert (acked.count, acked.dead) == (3, 3)
    assert [letter.seq for letter in await dead_letters(store)] == [3, 2, 1]
    assert await drain(store, "q") == []


async def test_failed_ones_count_as_failed_and_the_dead_as_dead(
    store: Store, clock: ManualClock
) -> None:
    await ordered(store, 1, retryLimit=2, retryDelay=0)
    for _ in range(3):
        message, lease = await pop_one(store, "q")
        await ack(store, message, lease, FAILED)
    row, group = await stats(store, "q"), await group_row(store, "q", DEFAULT_GROUP)
    assert (row.dead, row.dead_letters, row.pending, group.dead) == (1, 1, 0, 1)
    assert row.failed == group.failed == 3


# --- release, dead, and switches ---


async def test_release_gives_it_back_at_once_and_is_not_counted(store: Store) -> None:
    await ordered(store, retryLimit=1, retryDelay=60_000)
    for _ in range(10):
        message, lease = await pop_one(store, "q")
        assert (message.seq, message.attempts) == (1, 1)
        await ack(store, message, lease, RELEASE)
    assert await dead_letters(store) == []
    assert await seqs(store, "q") == [1, 2, 3]


async def test_release_between_failures_keeps_the_count(store: Store, clock: ManualClock) -> None:
    await ordered(store, retryLimit=1, retryDelay=1000)
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, FAILED)
    clock.advance(1)
    for _ in range(3):
        message, lease = await pop_one(store, "q")
        assert message.attempts == 2
        await ack(store, message, lease, RELEASE)
    message, lease = await pop_one(store, "q")
    assert (await ack(store, message, lease, FAILED)).dead == 1


async def test_dead_buries_at_once_whatever_retries_are_left(store: Store) -> None:
    await ordered(store, retryLimit=100)
    message, lease = await pop_one(store, "q")
    acked = await ack(store, message, lease, DEAD, error="poison")
    assert (acked.dead, acked.lease_released) == (1, True)
    [letter] = await dead_letters(store)
    assert (letter.seq, letter.error, letter.payload) == (1, "poison", b"1")
    assert await seqs(store, "q") == [2, 3]


async def test_with_dlq_after_max_retries_off_it_is_retried_for_ever(
    store: Store, clock: ManualClock
) -> None:
    await ordered(store, retryLimit=1, retryDelay=1000, dlqAfterMaxRetries=False, leaseTime=5)
    for attempt in range(1, 8):
        message, lease = await pop_one(store, "q")
        assert (message.seq, message.attempts) == (1, attempt)
        if attempt % 2:
            assert (await ack(store, message, lease, FAILED)).dead == 0
            assert (await pop(store, "q")).messages == []
            clock.advance(1)
        else:
            clock.advance(5)
    assert await dead_letters(store) == []


async def test_with_the_dead_letter_queue_off_the_dead_are_dropped_and_counted(
    store: Store, clock: ManualClock
) -> None:
    await ordered(store, 4, retryLimit=0, deadLetterQueue=False, leaseTime=5)
    message, lease = await pop_one(store, "q")
    assert (await ack(store, message, lease, FAILED)).dead == 1
    message, lease = await pop_one(store, "q")
    assert (await ack(store, message, lease, DEAD)).dead == 1
    await pop(store, "q")
    clock.advance(5)
    assert await seqs(store, "q") == [4]
    assert await dead_letters(store) == []
    row = await stats(store, "q")
    assert (row.dead, row.dead_letters) == (3, 0)


async def test_dead_for_one_group_is_alive_for_another(store: Store) -> None:
    await ordered(store, 2, retryLimit=0)
    message, lease = await pop_one(store, "q", group="g1")
    await ack(store, message, lease, FAILED, group="g1", error="g1's fault")
    assert await seqs(store, "q", group="g2") == [1, 2]
    [letter] = await dead_letters(store)
    assert letter.group == "g1"


async def test_the_same_message_can_be_a_dead_letter_of_several_groups(store: Store) -> None:
    await ordered(store, 1)
    for group in ("g1", "g2", "g3"):
        message, lease = await pop_one(store, "q", group=group)
        await ack(store, message, lease, DEAD, group=group)
    assert sorted(letter.group for letter in await dead_letters(store)) == ["g1", "g2", "g3"]
    assert (await stats(store, "q")).dead_letters == 3


async def test_a_change_of_the_retry_limit_holds_for_what_fails_from_then_on(
    store: Store,
) -> None:
    await ordered(store, 1, retryLimit=10, retryDelay=0)
    for _ in range(3):
        message, lease = await pop_one(store, "q")
        await ack(store, message, lease, FAILED)
    await store.configure("q", options={"retryLimit": 3})
    message, lease = await pop_one(store, "q")
    assert message.attempts == 4
    assert (await ack(store, message, lease, FAILED)).dead == 1


async def test_a_dead_letter_tells_all_about_its_message(store: Store, clock: ManualClock) -> None:
    answer = await push(
        store,
        "q",
        b'{"x":1}',
        partition="p",
        transaction_id="t",
        trace_id="trace",
        headers=b'{"h":1}',
    )
    pushed_at = clock.now()
    clock.advance(5)
    message, lease = await pop_one(store, "q", group="g")
    await ack(store, message, lease, DEAD, group="g", error="why\nso 👎")
    [letter] = await dead_letters(store)
    assert (letter.queue, letter.partition, letter.partition_id) == ("q", "p", answer.partition_id)
    assert (letter.seq, letter.transaction_id, letter.trace_id) == (1, "t", "trace")
    assert (letter.payload, letter.headers) == (b'{"x":1}', b'{"h":1}')
    assert (letter.error, letter.attempts, letter.group) == ("why\nso 👎", 1, "g")
    assert (letter.created_at, letter.failed_at) == (pushed_at, clock.now())
