"""An item's life: schedule, attempts, backoff, expiry, cancel, retry, results. Nothing stranded."""

from collections.abc import Sequence

import msgspec
import pytest

from monarq.clock import SECOND, ManualClock
from monarq.errors import (
    AlreadyAckedError,
    ConflictError,
    InvalidRequestError,
    LeaseExpiredError,
    LeaseForeignError,
    NotFoundError,
)
from monarq.model import (
    Ack,
    Acked,
    AckStatus,
    AttemptOutcome,
    Item,
    ItemState,
    Message,
    PushItem,
)
from monarq.store import Store
from tests.store.calls import ack, ack_all, ack_of, pop, pop_one, push, push_items, push_many, renew
from tests.store.conftest import OpenStore
from tests.store.scenarios import (
    COMPLETED,
    DEAD,
    FAILED,
    RELEASE,
    RETRY,
    WORK,
    dead_letters,
    drain,
    every,
    let_time_work,
    nothing_changes,
    numbers,
    stats,
)


async def work(store: Store, count: int = 1, **options: object) -> list[str]:
    """A work queue `w` with this many items; their ids."""
    await store.configure("w", kind=WORK, options=options)
    if not count:
        return []
    return [answer.message_id for answer in await push_many(store, "w", count)]


async def fail(store: Store, status: AckStatus = FAILED, error: str = "no") -> Item:
    """Lease the next item and answer so; the item as it is then."""
    item, lease = await pop_one(store, "w")
    await ack(store, item, lease, status, error=error)
    return await store.get_item(item.id)


# --- schedule ---


async def test_a_scheduled_item_is_ready_on_time_and_not_a_microsecond_before(
    store: Store, clock: ManualClock
) -> None:
    await work(store, 0)
    at = clock.now() + 10 * SECOND
    answer = await push(store, "w", run_at=at)
    item = await store.get_item(answer.message_id)
    assert (item.state, item.run_at, item.attempts) == (ItemState.SCHEDULED, at, 0)
    popped = await pop(store, "w")
    assert (popped.messages, popped.next_at) == ([], at)
    clock.advance(9.999999)
    assert (await pop(store, "w")).messages == []
    clock.advance(0.000001)
    message, _ = await pop_one(store, "w")
    assert message.id == answer.message_id


async def test_a_delay_counts_from_the_push(store: Store, clock: ManualClock) -> None:
    await work(store, 0)
    clock.advance(100)
    answer = await push(store, "w", delay_seconds=2.5)
    assert (await store.get_item(answer.message_id)).run_at == clock.now() + 2_500_000


async def test_a_run_time_that_has_come_already_is_ready_at_once(
    store: Store, clock: ManualClock
) -> None:
    await work(store, 0)
    answers = await push_items(
        store,
        PushItem("w", b"1", run_at=clock.now()),
        PushItem("w", b"2", run_at=0),
        PushItem("w", b"3", delay_seconds=0),
    )
    for answer in answers:
        assert (await store.get_item(answer.message_id)).state is ItemState.READY
    assert numbers(await drain(store, "w")) == [1, 2, 3]


async def test_the_lifecycle_promotes_what_is_due_and_says_whom_to_wake(
    store: Store, clock: ManualClock
) -> None:
    await work(store, 0)
    answers = [await push(store, "w", delay_seconds=n) for n in (10, 20)]
    report = (await let_time_work(store))[-1]
    assert report.next_at is not None
    assert clock.now() < report.next_at <= clock.now() + 10 * SECOND
    clock.advance(10)
    report = await store.lifecycle()
    assert (report.promoted, report.wake) == (1, ["w"])
    states = [(await store.get_item(answer.message_id)).state for answer in answers]
    assert states == [ItemState.READY, ItemState.SCHEDULED]
    report = (await let_time_work(store))[-1]
    assert report.next_at is not None
    assert report.next_at <= clock.now() + 10 * SECOND


async def test_a_scheduled_item_survives_a_restart_and_needs_no_later_push_to_be_promoted(
    store: Store, open_another: OpenStore, clock: ManualClock
) -> None:
    await work(store, 0)
    answers = [await push(store, "w", b"%d" % n, delay_seconds=60) for n in range(3)]
    await store.close()
    clock.advance(30)
    restarted = await open_another()
    report = (await let_time_work(restarted))[-1]
    assert report.next_at is not None
    assert clock.now() < report.next_at <= clock.now() + 30 * SECOND
    clock.advance(30)
    report = await restarted.lifecycle()
    assert (report.promoted, report.wake) == (3, ["w"])
    assert [m.id for m in await drain(restarted, "w")] == [a.message_id for a in answers]


async def test_a_lease_survives_a_restart_and_runs_out_on_time(
    store: Store, open_another: OpenStore, clock: ManualClock
) -> None:
    await work(store, 1, leaseTime=60)
    await push(store, "q")
    item, lease = await pop_one(store, "w")
    message, message_lease = await pop_one(store, "q", lease_seconds=60)
    await store.close()
    restarted = await open_another()
    assert (await pop(restarted, "w")).messages == []
    assert (await pop(restarted, "q")).messages == []
    await renew(restarted, lease, 100)
    await ack(restarted, message, message_lease)
    clock.advance(99)
    await ack(restarted, item, lease)
    assert (await restarted.get_item(item.id)).state is ItemState.DONE


# --- attempts and backoff ---


async def test_an_attempt_counts_when_it_is_leased(store: Store, clock: ManualClock) -> None:
    [item_id] = await work(store)
    popped = await pop(store, "w", consumer="me")
    assert popped.messages[0].attempts == 1
    assert popped.messages[0].max_attempts == 3
    item = await store.get_item(item_id)
    assert (item.state, item.attempts, item.consumer) == (ItemState.LEASED, 1, "me")
    assert item.lease_until == popped.lease_until == clock.now() + 300 * SECOND


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
    outcomes = [row.outcome for row in await store.item_attempts(item_id)]
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
    assert await store.item_attempts(item_id) == []
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


# --- expireTimeout ---


async def test_an_item_that_waits_too_long_ready_or_scheduled_is_dead(
    store: Store, clock: ManualClock
) -> None:
    await work(store, 0, expireTimeout=10)
    ready = await push(store, "w")
    scheduled = await push(store, "w", delay_seconds=60)
    clock.advance(9.999999)
    await let_time_work(store)
    assert (await store.get_item(ready.message_id)).state is ItemState.READY
    clock.advance(0.000001)
    assert (await pop(store, "w")).messages == []
    await let_time_work(store)
    for answer in (ready, scheduled):
        assert (await store.get_item(answer.message_id)).state is ItemState.DEAD
    letters = await dead_letters(store)
    assert [letter.attempts for letter in letters] == [0, 0]
    assert all(letter.error for letter in letters)


async def test_the_lifecycle_buries_expired_items_though_nobody_pops(
    store: Store, clock: ManualClock
) -> None:
    await work(store, 3, expireTimeout=10)
    report = (await let_time_work(store))[-1]
    assert report.next_at is not None
    assert report.next_at <= clock.now() + 10 * SECOND
    clock.advance(10)
    reports = await let_time_work(store)
    assert sum(report.buried for report in reports) == 3
    assert (await stats(store, "w")).states["dead"] == 3


async def test_an_item_does_not_expire_while_it_is_leased_but_when_it_comes_back(
    store: Store, clock: ManualClock
) -> None:
    done, back = await work(store, 2, expireTimeout=10, leaseTime=60)
    first, second = [await pop_one(store, "w") for _ in range(2)]
    clock.advance(30)
    await let_time_work(store)
    assert (await store.get_item(done)).state is ItemState.LEASED
    await ack(store, *first)
    assert (await store.get_item(done)).state is ItemState.DONE
    await ack(store, *second, RELEASE)
    assert (await pop(store, "w")).messages == []
    await let_time_work(store)
    assert (await store.get_item(back)).state is ItemState.DEAD


# --- cancel and retry_item ---


async def test_a_cancelled_item_is_never_leased_from_any_state(
    store: Store, clock: ManualClock
) -> None:
    ready, leased = await work(store, 2, leaseTime=10)
    scheduled = (await push(store, "w", delay_seconds=5)).message_id
    await ack_all(store, await pop(store, "w", 1), RELEASE)
    popped = await pop(store, "w", 2)
    await ack(store, popped.messages[0], popped.lease_id, RELEASE)
    for item_id in (ready, leased, scheduled):
        cancelled = await store.cancel_item(item_id)
        assert (cancelled.state, cancelled.finished_at) == (ItemState.CANCELLED, clock.now())
        assert cancelled == await store.get_item(item_id)
    clock.advance(20)
    await let_time_work(store)
    assert (await pop(store, "w", 10)).messages == []
    assert (await stats(store, "w")).states["cancelled"] == 3
    assert await dead_letters(store) == []


async def test_an_item_that_is_finished_while_it_waits_keeps_the_priority_it_had_reached(
    store: Store, clock: ManualClock
) -> None:
    [cancelled, expired] = await work(store, 2, expireTimeout=20, defaultPriority=5)
    await push_many(store, "w", 3, delay_seconds=1000)
    assert (await store.cancel_item(cancelled)).effective_priority == 5 + 4
    clock.advance(21)
    await let_time_work(store)
    await push_many(store, "w", 2)
    assert (await store.get_item(cancelled)).effective_priority == 5 + 4
    dead = await store.get_item(expired)
    assert (dead.state, dead.effective_priority) == (ItemState.DEAD, 5 + 3)


@pytest.mark.parametrize("status", [FAILED, RETRY, RELEASE, None], ids=str)
async def test_an_item_that_waits_again_is_nobodys(
    store: Store, clock: ManualClock, status: AckStatus | None
) -> None:
    [waiting] = await work(store, leaseTime=10)
    item, lease = await pop_one(store, "w", consumer="c")
    assert (await store.get_item(waiting)).consumer == "c"
    if status is None:
        clock.advance(11)
        await let_time_work(store)
    else:
        await ack(store, item, lease, status)
    assert (await store.get_item(waiting)).consumer is None


@pytest.mark.parametrize("status", [COMPLETED, DEAD, None], ids=str)
async def test_a_finished_item_says_who_had_it_last(store: Store, status: AckStatus | None) -> None:
    [finished] = await work(store)
    item, lease = await pop_one(store, "w", consumer="first")
    await ack(store, item, lease, RELEASE)
    item, lease = await pop_one(store, "w", consumer="last")
    if status is None:
        await store.cancel_item(finished)
    else:
        await ack(store, item, lease, status)
    assert (await store.get_item(finished)).consumer == "last"


async def test_what_an_item_failed_of_before_is_forgotten_once_it_is_done(store: Store) -> None:
    [done] = await work(store, backoffBase=0)
    assert (await fail(store)).error == "no"
    await pop(store, "w", auto_ack=True, consumer="c")
    item = await store.get_item(done)
    assert (item.state, item.error, item.consumer) == (ItemState.DONE, None, "c")


async def test_only_what_is_not_finished_can_be_cancelled(store: Store) -> None:
    done, dead, cancelled = await work(store, 3)
    await fail(store, COMPLETED)
    await fail(store, DEAD)
    await store.cancel_item(cancelled)
    async with nothing_changes(store):
        for item_id in (done, dead, cancelled):
            with pytest.raises(ConflictError):
                await store.cancel_item(item_id)


async def test_a_finished_item_can_be_retried_with_its_attempts_forgotten(
    store: Store,
) -> None:
    done, dead, cancelled = await work(store, 3, maxAttempts=2)
    await fail(store, COMPLETED)
    await fail(store, DEAD)
    await store.cancel_item(cancelled)
    for item_id in (dead, cancelled, done):
        item = await store.retry_item(item_id)
        assert (item.state, item.attempts, item.finished_at) == (ItemState.READY, 0, None)
    popped = await pop(store, "w", 3)
    assert [message.id for message in popped.messages] == [dead, cancelled, done]
    assert [message.attempts for message in popped.messages] == [1, 1, 1]
    assert (await stats(store, "w")).states.get("dead", 0) == 0


async def test_a_dead_item_that_is_retried_is_no_dead_letter_any_more(store: Store) -> None:
    [item_id] = await work(store, maxAttempts=1)
    await fail(store)
    await store.retry_item(item_id)
    assert await dead_letters(store) == []
    assert (await stats(store, "w")).dead_letters == 0
    await fail(store)
    assert len(await dead_letters(store)) == 1


async def test_a_scheduled_item_that_is_retried_is_ready_now(store: Store) -> None:
    await work(store, 0)
    answer = await push(store, "w", delay_seconds=3600)
    assert (await store.retry_item(answer.message_id)).state is ItemState.READY
    assert (await pop(store, "w")).messages


async def test_a_leased_item_cannot_be_retried(store: Store) -> None:
    [item_id] = await work(store)
    message, lease = await pop_one(store, "w")
    async with nothing_changes(store):
        with pytest.raises(ConflictError):
            await store.retry_item(item_id)
    await ack(store, message, lease)


async def test_an_item_that_does_not_exist_is_not_found_and_a_malformed_id_is_refused(
    store: Store,
) -> None:
    [item_id] = await work(store)
    message = await push(store, "q")
    partition_id = int(item_id.split("-")[0])
    async with nothing_changes(store):
        for missing in (f"{partition_id}-99", "987654321-1", message.message_id):
            for call in (store.get_item, store.cancel_item, store.retry_item):
                with pytest.raises(NotFoundError):
                    await call(missing)
        for malformed in ("", "x", "1", "1-0", "0-1", "1-1-1", "-1-1", " 1-1"):
            for call in (store.get_item, store.cancel_item, store.retry_item):
                with pytest.raises(InvalidRequestError):
                    await call(malformed)
            with pytest.raises(InvalidRequestError):
                await store.item_attempts(malformed)


async def test_an_item_is_found_by_its_transaction_id_in_its_queue_alone(store: Store) -> None:
    await work(store, 0)
    await store.configure("other", kind=WORK)
    await push(store, "w", b"1", transaction_id="a")
    await push(store, "other", b"2", transaction_id="a")
    plain = await push(store, "w", b"3")
    assert (await store.find_item("w", "a")).payload == b"1"
    assert (await store.find_item("other", "a")).payload == b"2"
    assert (await store.find_item("w", plain.transaction_id)).payload == b"3"
    with pytest.raises(NotFoundError):
        await store.find_item("w", "b")
    with pytest.raises(NotFoundError):
        await store.find_item("other", plain.transaction_id)


# --- results ---


async def test_every_attempt_leaves_its_row_with_times_outcome_consumer_error_and_result(
    store: Store, clock: ManualClock
) -> None:
    [item_id] = await work(store, maxAttempts=10, leaseTime=100, backoffBase=0)
    expected = []

    async def attempt(number: int, outcome: str) -> None:
        started = clock.now()
        message, lease = await pop_one(store, "w", consumer=f"worker {number}")
        assert message.attempts == number
        clock.advance(number)
        result, error = b'{"exit":%d,"out":"\\u0000"}' % number, f"error {number}"
        if outcome == "expired":
            clock.advance(100 - number)
            await let_time_work(store)
            result, error = b"", ""
        elif outcome == "cancelled":
            await store.cancel_item(item_id)
            result, error = b"", ""
        else:
            status = AckStatus(outcome)
            await ack(store, message, lease, status, result=result, error=error)
        expected.append((number, started, clock.now(), outcome, f"worker {number}", error, result))

    for number, outcome in enumerate(["failed", "retry", "expired", "completed"], start=1):
        await attempt(number, outcome)
    rows = await store.item_attempts(item_id)
    assert [(r.item_id, r.queue) for r in rows] == [(item_id, "w")] * 4
    for row, (number, started, ended, outcome, consumer, error, result) in zip(
        rows, expected, strict=True
    ):
        assert (row.attempt, row.started_at, row.ended_at) == (number, started, ended)
        assert (row.outcome, row.consumer) == (outcome, consumer)
        if outcome not in ("expired", "cancelled"):
            assert (row.error, row.result) == (error, result)
    assert await every(store.list_attempts, queue="w", limit=1) == rows
    await store.retry_item(item_id)
    await attempt(1, "cancelled")
    assert (await store.item_attempts(item_id))[-1].outcome is AttemptOutcome.CANCELLED
    await store.retry_item(item_id)
    await attempt(1, "dead")
    assert (await store.item_attempts(item_id))[-1].outcome is AttemptOutcome.DEAD


async def test_output_is_kept_when_an_attempt_fails_for_good(store: Store) -> None:
    [item_id] = await work(store, maxAttempts=1)
    message, lease = await pop_one(store, "w")
    result = b'{"exitCode":1,"stdout":"%s"}' % (b"x" * 200_000)
    await ack(store, message, lease, FAILED, error="exit 1", result=result)
    [row] = await store.item_attempts(item_id)
    assert (row.outcome, row.error, row.result) == (AttemptOutcome.FAILED, "exit 1", result)


async def test_cancelling_what_was_never_leased_leaves_no_attempt(store: Store) -> None:
    [item_id] = await work(store)
    await store.cancel_item(item_id)
    assert await store.item_attempts(item_id) == []


async def test_a_whole_lease_completed_at_once_leaves_a_row_for_each_item(store: Store) -> None:
    ids = await work(store, 3)
    await ack_all(store, await pop(store, "w", 3), result=b'"r"')
    for item_id in ids:
        [row] = await store.item_attempts(item_id)
        assert (row.attempt, row.outcome, row.result) == (1, AttemptOutcome.COMPLETED, b'"r"')


async def test_a_done_item_says_when_it_finished_and_an_item_shows_all_it_was_pushed_with(
    store: Store, clock: ManualClock
) -> None:
    await work(store, 0)
    [answer] = await push_items(
        store,
        PushItem(
            "w", b'{"a":1}', transaction_id="t", trace_id="tr", headers=b'{"h":1}', priority=7
        ),
        producer="me",
    )
    pushed_at = clock.now()
    item = await store.get_item(answer.message_id)
    assert (item.queue, item.partition_id, item.seq) == ("w", answer.partition_id, 1)
    assert (item.transaction_id, item.trace_id, item.producer) == ("t", "tr", "me")
    assert (item.payload, item.headers, item.priority) == (b'{"a":1}', b'{"h":1}', 7)
    assert (item.created_at, item.run_at, item.finished_at) == (pushed_at, None, None)
    message, lease = await pop_one(store, "w")
    assert (message.trace_id, message.producer, message.headers) == ("tr", "me", b'{"h":1}')
    clock.advance(5)
    await ack(store, message, lease)
    item = await store.get_item(answer.message_id)
    assert (item.state, item.finished_at, item.lease_until) == (
        ItemState.DONE,
        clock.now(),
        None,
    )


async def test_items_of_many_queues_in_one_push_each_keep_what_is_theirs(
    store: Store, clock: ManualClock
) -> None:
    queues = {"a": 5, "b": 0, "c": -3}
    for queue, priority in queues.items():
        await store.configure(queue, kind=WORK, options={"defaultPriority": priority})
    later = clock.now() + 10 * SECOND
    items = [
        PushItem("b", b"0"),
        PushItem("c", b"1", trace_id="one", run_at=later),
        PushItem("a", b"2", transaction_id="two"),
        PushItem("c", b"3", priority=9, max_attempts=7),
        PushItem("b", b"4", headers=b'{"h":4}', delay_seconds=10),
        PushItem("a", b"5", delay_seconds=0),
    ]
    answers = await push_items(store, *items)
    for pushed, answer in zip(items, answers, strict=True):
        item = await store.get_item(answer.message_id)
        assert (item.queue, item.payload) == (pushed.queue, pushed.payload)
        assert item.transaction_id == (pushed.transaction_id or answer.message_id)
        assert (item.trace_id, item.headers) == (pushed.trace_id, pushed.headers)
        assert item.priority == (pushed.priority or queues[item.queue])
        assert item.max_attempts == (pushed.max_attempts or 3)
        assert item.run_at == (later if pushed.payload in (b"1", b"4") else None)
    assert [answer.seq for answer in answers] == [1, 1, 1, 2, 2, 2]
    for queue, ready, scheduled in (("a", 2, 0), ("b", 1, 1), ("c", 1, 1)):
        row = await stats(store, queue)
        assert (row.states["ready"], row.states["scheduled"]) == (ready, scheduled)


def answers(messages: Sequence[Message], lease_id: str | None, *statuses: AckStatus) -> list[Ack]:
    return [
        ack_of(message, lease_id, status, result=message.payload)
        for message, status in zip(messages, statuses, strict=True)
    ]


def kinds(outcomes: Sequence[object]) -> list[type[object]]:
    return [type(outcome) for outcome in outcomes]


async def test_of_many_items_completed_at_once_those_that_the_lease_has_lost_are_refused(
    store: Store,
) -> None:
    await work(store, 5)
    popped = await pop(store, "w", 5)
    first, second, third, fourth, fifth = popped.messages
    await store.cancel_item(second.id)
    asked = answers([first, second, third, third, fourth], popped.lease_id, *[COMPLETED] * 5)
    assert kinds(await store.ack(asked)) == [
        Acked,
        LeaseExpiredError,
        Acked,
        AlreadyAckedError,
        Acked,
    ]
    states = [(await store.get_item(message.id)).state for message in popped.messages]
    assert states == [
        ItemState.DONE,
        ItemState.CANCELLED,
        ItemState.DONE,
        ItemState.DONE,
        ItemState.LEASED,
    ]
    for message in (first, third, fourth):
        [attempt] = await store.item_attempts(message.id)
        assert (attempt.outcome, attempt.result) == (AttemptOutcome.COMPLETED, message.payload)
    row = await stats(store, "w")
    assert (row.states["done"], row.states["leased"], row.completed) == (3, 1, 3)
    wrong = msgspec.structs.replace(asked[0], transaction_id=f"{fifth.partition_id}-0{fifth.seq}")
    assert kinds(await store.ack([wrong, *asked[:1]])) == [NotFoundError, AlreadyAckedError]


async def test_different_answers_to_items_of_one_call_count_in_their_order(store: Store) -> None:
    await work(store, 4, maxAttempts=1)
    popped = await pop(store, "w", 4)
    a, b, c, d = popped.messages
    asked = answers(
        [a, b, c, a, b, d],
        popped.lease_id,
        FAILED,
        COMPLETED,
        RELEASE,
        COMPLETED,
        FAILED,
        COMPLETED,
    )
    outcomes = await store.ack(asked)
    assert kinds(outcomes) == [Acked, Acked, Acked, AlreadyAckedError, AlreadyAckedError, Acked]
    states = [(await store.get_item(message.id)).state for message in (a, b, c, d)]
    assert states == [ItemState.DEAD, ItemState.DONE, ItemState.READY, ItemState.DONE]
    row = await stats(store, "w")
    assert (row.states["done"], row.states["dead"], row.states["ready"]) == (2, 1, 1)


async def test_items_of_many_queues_and_leases_are_answered_in_one_call(store: Store) -> None:
    await store.configure("v", kind=WORK)
    await work(store, 3)
    await push_many(store, "v", 4)
    ours, other = await pop(store, "w", 3), await pop(store, "v", 2)
    last = await pop(store, "v", 2)
    asked = [
        *answers(ours.messages, ours.lease_id, COMPLETED, FAILED, COMPLETED),
        *answers(other.messages, last.lease_id, COMPLETED, COMPLETED),
        *answers(last.messages[:1], last.lease_id, COMPLETED),
    ]
    assert kinds(await store.ack(asked)) == [Acked] * 3 + [LeaseForeignError] * 2 + [Acked]
    for queue, done, leased in (("w", 2, 0), ("v", 1, 3)):
        row = await stats(store, queue)
        assert (row.states["done"], row.states["leased"]) == (done, leased)
