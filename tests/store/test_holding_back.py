"""Options that hold messages back, or bury those that waited too long."""

import pytest

from monarq.clock import SECOND, ManualClock
from monarq.model import AckStatus, DeadLetterFilter, PushStatus, StartFrom
from monarq.store import Store
from tests.store.calls import ack, ack_all, pop, pop_one, push, push_many, seqs
from tests.store.scenarios import (
    FAILED,
    RELEASE,
    dead_letters,
    drain,
    group_row,
    let_time_work,
    stats,
)

# --- delayedProcessing ---


async def test_no_message_younger_than_the_delay_is_delivered(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"delayedProcessing": 5})
    due = clock.now() + 5 * SECOND
    await push(store, "q")
    popped = await pop(store, "q")
    assert (popped.messages, popped.next_at) == ([], due)
    clock.advance(4.999999)
    assert (await pop(store, "q")).messages == []
    clock.advance(0.000001)
    assert await seqs(store, "q") == [1]


async def test_a_batch_ends_before_the_first_message_that_is_too_young(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"delayedProcessing": 5})
    await push_many(store, "q", 2)
    clock.advance(3)
    await push_many(store, "q", 2)
    clock.advance(2)
    popped = await pop(store, "q", 10)
    assert [message.seq for message in popped.messages] == [1, 2]
    await ack_all(store, popped)
    popped = await pop(store, "q", 10)
    assert (popped.messages, popped.next_at) == ([], clock.now() + 3 * SECOND)
    clock.advance(3)
    assert await seqs(store, "q") == [3, 4]


async def test_a_delay_holds_back_its_partition_and_no_other_queue(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("slow", namespace="ns", options={"delayedProcessing": 60})
    await push(store, "slow")
    await push(store, "quick", namespace="ns")
    assert [m.queue for m in await drain(store, namespace="ns")] == ["quick"]
    clock.advance(60)
    assert [m.queue for m in await drain(store, namespace="ns")] == ["slow"]


async def test_a_delay_switched_on_or_off_holds_for_what_is_there(
    store: Store, clock: ManualClock
) -> None:
    await push(store, "q")
    await store.configure("q", options={"delayedProcessing": 5})
    assert (await pop(store, "q")).messages == []
    await store.configure("q", options={"delayedProcessing": 0})
    clock.advance(5)
    assert await seqs(store, "q") == [1]


# --- windowBuffer ---


async def test_a_partition_is_delivered_only_when_it_has_been_quiet_long_enough(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"windowBuffer": 5})
    for n in range(4):
        await push(store, "q")
        popped = await pop(store, "q", 10)
        assert popped.messages == []
        assert popped.next_at is not None
        assert clock.now() < popped.next_at <= clock.now() + 5 * SECOND
        if n == 0:
            assert popped.next_at == clock.now() + 5 * SECOND
        clock.advance(4.999999)
        assert (await pop(store, "q", 10)).messages == []
    clock.advance(0.000001)
    assert await seqs(store, "q") == [1, 2, 3, 4]


async def test_each_partition_has_a_window_of_its_own(store: Store, clock: ManualClock) -> None:
    await store.configure("q", options={"windowBuffer": 5})
    await push(store, "q", partition="quiet")
    clock.advance(3)
    await push(store, "q", partition="busy")
    clock.advance(2)
    assert [m.partition for m in await drain(store, "q")] == ["quiet"]
    clock.advance(3)
    assert [m.partition for m in await drain(store, "q")] == ["busy"]


async def test_a_duplicate_does_not_keep_the_window_open(store: Store, clock: ManualClock) -> None:
    await store.configure("q", options={"windowBuffer": 5})
    await push(store, "q", transaction_id="a")
    clock.advance(4)
    assert (await push(store, "q", transaction_id="a")).status is PushStatus.DUPLICATE
    clock.advance(1)
    assert await seqs(store, "q") == [1]


async def test_a_push_while_a_lease_runs_opens_the_window_for_what_is_left(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"windowBuffer": 5})
    await push_many(store, "q", 3)
    clock.advance(5)
    popped = await pop(store, "q", 2)
    clock.advance(1)
    await push(store, "q")
    await ack_all(store, popped)
    assert (await pop(store, "q", 10)).messages == []
    clock.advance(5)
    assert await seqs(store, "q") == [3, 4]


# --- maxWaitTimeSeconds ---


async def test_messages_that_waited_too_long_are_buried_at_the_next_pop(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"maxWaitTimeSeconds": 10})
    await push_many(store, "q", 2)
    clock.advance(4)
    await push(store, "q", b"3")
    clock.advance(5.999999)
    assert (await pop(store, "q", 1, group="in time")).messages
    clock.advance(0.000001)
    assert await seqs(store, "q", group="g") == [3]
    letters = await dead_letters(store, group="g")
    assert sorted(letter.seq for letter in letters) == [1, 2]
    assert {letter.failed_at for letter in letters} == {clock.now()}
    assert all(letter.error for letter in letters)


async def test_the_lifecycle_buries_what_waited_too_long_though_nobody_pops(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"maxWaitTimeSeconds": 10})
    await push_many(store, "q", 3)
    await store.subscribe("g1", StartFrom.ALL, queue="q")
    await store.subscribe("g2", StartFrom.ALL, queue="q")
    clock.advance(10)
    reports = await let_time_work(store)
    assert sum(report.buried for report in reports) == 6
    assert await store.count_dead_letters(DeadLetterFilter(group="g1")) == 3
    assert await store.count_dead_letters(DeadLetterFilter(group="g2")) == 3
    assert (await group_row(store, "q", "g1")).lag == 0
    assert await drain(store, "q", group="g1") == []


async def test_what_was_acked_in_time_is_not_buried_and_a_live_lease_may_finish(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"maxWaitTimeSeconds": 10})
    await push_many(store, "q", 3)
    popped = await pop(store, "q", 2, lease_seconds=60)
    await ack(store, popped.messages[1], popped.lease_id)
    clock.advance(20)
    await let_time_work(store)
    assert (await ack(store, popped.messages[0], popped.lease_id)).lease_released
    assert (await pop(store, "q")).messages == []
    assert [letter.seq for letter in await dead_letters(store)] == [3]
    assert (await stats(store, "q")).completed == 2


async def test_a_message_that_waits_for_its_retry_can_wait_too_long_as_well(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"maxWaitTimeSeconds": 10, "retryDelay": 60_000})
    await push(store, "q")
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, FAILED, error="first")
    clock.advance(60)
    assert (await pop(store, "q")).messages == []
    assert [letter.seq for letter in await dead_letters(store)] == [1]


@pytest.mark.parametrize("status", [FAILED, RELEASE], ids=str)
async def test_a_message_that_grew_too_old_under_a_lease_is_dead_soon_after_it(
    store: Store, clock: ManualClock, status: AckStatus
) -> None:
    await store.configure("q", options={"maxWaitTimeSeconds": 10, "leaseTime": 300})
    await push(store, "q")
    message, lease = await pop_one(store, "q")
    clock.advance(11)
    await let_time_work(store)
    assert await dead_letters(store) == []
    await ack(store, message, lease, status)
    clock.advance(1)
    await let_time_work(store)
    assert [letter.seq for letter in await dead_letters(store)] == [1]


async def test_a_group_that_comes_later_and_never_pops_has_its_old_messages_evicted_too(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"maxWaitTimeSeconds": 10})
    await push(store, "q")
    clock.advance(11)
    await let_time_work(store)
    await store.subscribe("late", StartFrom.ALL, queue="q")
    clock.advance(30)
    await let_time_work(store)
    assert [letter.group for letter in await dead_letters(store)] == ["late"]
    assert (await group_row(store, "q", "late")).lag == 0
