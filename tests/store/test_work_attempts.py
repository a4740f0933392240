"""Attempts count at the lease and end at their limit; between them is the backoff."""

from typing import Any

import pytest

from monarq.clock import SECOND, ManualClock
from monarq.errors import InvalidRequestError
from monarq.model import AttemptOutcome, ItemState, Push, PushItem
from monarq.store import Store
from tests.store.calls import ack, ack_all, next_items, pop, pop_one, push, renew
from tests.store.scenarios import (
    DEAD,
    FAILED,
    RELEASE,
    RETRY,
    dead_letters,
    every,
    let_time_work,
    stats,
)
from tests.store.work_queue import fail, work

pytestmark = pytest.mark.smoke


async def test_an_attempt_counts_when_it_is_leased(store: Store, clock: ManualClock) -> None:
    [item_id] = await work(store)
    popped = await pop(store, "w", consumer="me")
    assert popped.messages[0].attempts == 1
    assert popped.messages[0].max_attempts == 3
    item = await store.get_item(item_id)
    assert (item.state, item.attempts, item.consumer) == (ItemState.LEASED, 1, "me")
    assert item.lease_until == popped.lease_until == clock.now() + 300 * SECOND


async def test_an_imported_item_goes_on_from_the_attempts_it_has_used_up(store: Store) -> None:
    await work(store, 0, maxAttempts=3)
    await store.restore(
        Push([PushItem("w", b"1", attempts=2), PushItem("w", b"2")], producer="somebody")
    )
    assert [item.attempts for item in await next_items(store, "w")] == [2, 0]
    last, lease = await pop_one(store, "w")
    assert (last.attempts, last.producer) == (3, "somebody")
    await ack(store, last, lease, FAILED)
    assert [letter.payload for letter in await dead_letters(store)] == [b"1"]
    assert (await pop_one(store, "w"))[0].attempts == 1


@pytest.mark.parametrize("attempts", [-1, 1.5, True, "1", 2**31])
async def test_attempts_out_of_range_are_refused(store: Store, attempts: Any) -> None:
    await work(store, 0)
    with pytest.raises(InvalidRequestError, match="attempts"):
        await store.restore(Push([PushItem("w", b"1", attempts=attempts)]))
    assert await next_items(store, "w") == []


async def test_messages_of_ordered_queues_have_no_attempts_to_import(store: Store) -> None:
    await push(store, "q")
    for queue in ("q", "new"):
        with pytest.raises(InvalidRequestError, match="attempts is for work queues"):
            await store.restore(Push([PushItem(queue, b"1", attempts=1)]))
    await store.restore(Push([PushItem("q", b"1")], producer="somebody"))
    assert [one.producer for one in (await store.list_messages("q")).rows] == [None, "somebody"]


async def test_an_item_that_kills_its_worker_every_time_ends_dead(
    store: Store, clock: ManualClock
) -> None:
    [item_id] = await work(store, maxAttempts=3, leaseTime=10)
    for attempt in (1, 2, 3):
        message, _ = await pop_one(store, "w")
        assert message.attempts == attempt
        clock.advance(10)
    assert (await pop(store, "w")).messages == []
    item = await store.get_item(item_id)
    assert (item.state, item.attempts) == (ItemState.DEAD, 3)
    [letter] = await dead_letters(store)
    assert (letter.seq, letter.attempts) == (1, 3)
    outcomes = [row.outcome for row in (await store.get_item(item_id)).history]
    assert outcomes == [AttemptOutcome.EXPIRED] * 3


async def test_a_slow_item_does_not_die_while_its_last_lease_is_renewed(
    store: Store, clock: ManualClock
) -> None:
    [item_id] = await work(store, maxAttempts=1, leaseTime=10)
    message, lease = await pop_one(store, "w")
    for _ in range(5):
        clock.advance(9)
        await renew(store, lease, 10)
        await let_time_work(store)
    assert (await store.get_item(item_id)).state is ItemState.LEASED
    await ack(store, message, lease)
    assert (await store.get_item(item_id)).state is ItemState.DONE


async def test_renewing_never_brings_the_deadline_of_an_item_nearer(
    store: Store, clock: ManualClock
) -> None:
    await work(store)
    popped = await pop(store, "w", lease_seconds=100)
    assert popped.lease_id
    assert (await renew(store, popped.lease_id, 5)).expires_at == popped.lease_until
    clock.advance(99)
    await let_time_work(store)
    assert (await pop(store, "w")).messages == []
    await ack_all(store, popped)


async def test_an_expired_item_is_ready_at_once_for_the_next(
    store: Store, clock: ManualClock
) -> None:
    [item_id] = await work(store, leaseTime=10)
    popped = await pop(store, "w")
    assert (await pop(store, "w")).next_at == popped.lease_until
    clock.advance(10)
    report = await store.lifecycle()
    assert (report.expired, report.wake) == (1, ["w"])
    item = await store.get_item(item_id)
    assert (item.state, item.attempts, item.lease_until) == (ItemState.READY, 1, None)


async def test_backoff_is_the_base_to_the_power_of_the_attempts(
    store: Store, clock: ManualClock
) -> None:
    await work(store, maxAttempts=6, backoffBase=3)
    for seconds in (3, 9, 27, 81, 243):
        item = await fail(store)
        assert (item.state, item.run_at) == (ItemState.SCHEDULED, clock.now() + seconds * SECOND)
        assert item.error == "no"
        clock.advance(seconds - 0.000001)
        assert (await pop(store, "w")).messages == []
        clock.advance(0.000001)
    item = await fail(store)
    assert (item.state, item.attempts) == (ItemState.DEAD, 6)


async def test_backoff_of_a_fractional_base_is_exact_to_the_microsecond(
    store: Store, clock: ManualClock
) -> None:
    await work(store, maxAttempts=10, backoffBase=1.5)
    for attempts in range(1, 7):
        item = await fail(store)
        assert item.run_at == clock.now() + round(1.5**attempts * SECOND)
        clock.advance(1.5**attempts + 0.001)


async def test_backoff_stops_growing_at_its_cap(store: Store, clock: ManualClock) -> None:
    await work(store, maxAttempts=10, backoffBase=10, backoffCap=50.5)
    for seconds in (10, 50.5, 50.5, 50.5):
        item = await fail(store)
        assert item.run_at == clock.now() + round(seconds * SECOND)
        clock.advance(seconds)


async def test_backoff_of_very_many_attempts_is_the_cap_and_not_an_overflow(
    store: Store, clock: ManualClock
) -> None:
    await work(store, maxAttempts=1000, backoffBase=1000, backoffCap=1)
    for _ in range(120):
        item = await fail(store)
        assert item.run_at == clock.now() + SECOND
        clock.advance(1)
    assert item.attempts == 120


@pytest.mark.parametrize(("base", "seconds"), [(0, 0), (1, 1), (0.5, 0.5)])
async def test_small_bases_back_off_as_the_formula_says(
    store: Store, clock: ManualClock, base: float, seconds: float
) -> None:
    await work(store, backoffBase=base)
    await fail(store)
    clock.advance(seconds)
    message, _ = await pop_one(store, "w")
    assert message.attempts == 2


async def test_jitter_adds_at_most_its_part_and_not_always_the_same(
    store: Store, clock: ManualClock
) -> None:
    await work(store, 40, backoffBase=100, backoffJitter=0.5)
    popped = await pop(store, "w", 40)
    await ack_all(store, popped, FAILED)
    waits = [
        (item.run_at or 0) - clock.now()
        for item in await every(store.list_items, "w", state=ItemState.SCHEDULED)
    ]
    assert len(waits) == 40
    assert all(100 * SECOND <= wait <= 150 * SECOND for wait in waits)
    assert len(set(waits)) > 20
    assert max(waits) - min(waits) > 10 * SECOND


async def test_jitter_comes_on_top_of_the_cap_and_within_its_part(
    store: Store, clock: ManualClock
) -> None:
    await work(store, 10, backoffBase=100, backoffCap=10, backoffJitter=0.1)
    await ack_all(store, await pop(store, "w", 10), FAILED)
    for item in await every(store.list_items, "w"):
        assert item.run_at is not None
        assert 10 * SECOND <= item.run_at - clock.now() <= 11 * SECOND


async def test_retry_at_takes_the_place_of_the_backoff(store: Store, clock: ManualClock) -> None:
    [item_id] = await work(store)
    message, lease = await pop_one(store, "w")
    at = clock.now() + 1234 * SECOND
    await ack(store, message, lease, FAILED, retry_at=at)
    assert (await store.get_item(item_id)).run_at == at


async def test_an_items_own_settings_win_and_the_queues_are_taken_when_it_is_pushed(
    store: Store, clock: ManualClock
) -> None:
    await work(store, 0, maxAttempts=5, backoffBase=2)
    own = await push(store, "w", max_attempts=2, backoff_base=7)
    plain = await push(store, "w")
    await store.configure("w", options={"maxAttempts": 1, "backoffBase": 9})
    assert (await store.get_item(own.message_id)).max_attempts == 2
    assert (await store.get_item(plain.message_id)).max_attempts == 5
    popped = await pop(store, "w", 2)
    await ack_all(store, popped, FAILED)
    assert (await store.get_item(own.message_id)).run_at == clock.now() + 7 * SECOND
    assert (await store.get_item(plain.message_id)).run_at == clock.now() + 2 * SECOND


async def test_one_attempt_means_one(store: Store) -> None:
    [item_id] = await work(store, maxAttempts=1)
    item = await fail(store, error="the only one")
    assert (item.id, item.state, item.error) == (item_id, ItemState.DEAD, "the only one")
    [letter] = await dead_letters(store)
    assert (letter.error, letter.attempts) == ("the only one", 1)


async def test_retry_respects_the_maximum(store: Store) -> None:
    await work(store, maxAttempts=2)
    assert (await fail(store, RETRY)).state is ItemState.READY
    assert (await fail(store, RETRY)).state is ItemState.DEAD
    assert len(await dead_letters(store)) == 1


async def test_retry_without_a_time_is_ready_at_once_and_with_one_is_scheduled(
    store: Store, clock: ManualClock
) -> None:
    [item_id] = await work(store)
    message, lease = await pop_one(store, "w")
    await ack(store, message, lease, RETRY)
    assert (await store.get_item(item_id)).state is ItemState.READY
    message, lease = await pop_one(store, "w")
    assert message.attempts == 2
    await ack(store, message, lease, RETRY, retry_at=clock.now() + SECOND)
    item = await store.get_item(item_id)
    assert (item.state, item.run_at) == (ItemState.SCHEDULED, clock.now() + SECOND)


async def test_release_takes_the_attempt_back_and_leaves_no_trace(store: Store) -> None:
    [item_id] = await work(store, maxAttempts=1)
    for _ in range(5):
        item = await fail(store, RELEASE)
        assert (item.state, item.attempts, item.lease_until) == (ItemState.READY, 0, None)
    assert (await store.get_item(item_id)).history == []
    message, _ = await pop_one(store, "w")
    assert message.attempts == 1


async def test_dead_buries_and_does_not_delete(store: Store, clock: ManualClock) -> None:
    [item_id] = await work(store, maxAttempts=100)
    item = await fail(store, DEAD, error="poison")
    assert (item.id, item.state, item.error) == (item_id, ItemState.DEAD, "poison")
    assert item.finished_at == clock.now()
    [letter] = await dead_letters(store)
    assert (letter.payload, letter.error, letter.attempts) == (b"1", "poison", 1)
    assert (await pop(store, "w")).messages == []


async def test_with_the_dead_letter_queue_off_a_dead_item_is_dropped_and_counted(
    store: Store,
) -> None:
    await work(store, 2, maxAttempts=1, deadLetterQueue=False)
    message, lease = await pop_one(store, "w")
    assert (await ack(store, message, lease, FAILED)).dead == 1
    assert await dead_letters(store) == []
    row = await stats(store, "w")
    assert (row.dead, row.dead_letters, row.pending) == (1, 0, 1)
