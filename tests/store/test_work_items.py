"""An item's life: expiry, cancel, retry, what it shows of itself, and what its attempts left."""

import pytest

from monarq.clock import SECOND, ManualClock
from monarq.errors import ConflictError, InvalidRequestError, NotFoundError
from monarq.model import AckStatus, Attempt, AttemptOutcome, ItemState, PushItem
from monarq.store import Store
from tests.store.calls import ack, ack_all, pop, pop_one, push, push_items, push_many
from tests.store.scenarios import (
    COMPLETED,
    DEAD,
    FAILED,
    RELEASE,
    RETRY,
    WORK,
    dead_letters,
    every,
    let_time_work,
    nothing_changes,
    stats,
)
from tests.store.work_queue import fail, work

pytestmark = pytest.mark.smoke

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


async def test_an_item_is_found_by_its_transaction_id_in_its_queue_alone(store: Store) -> None:
    await work(store, 0)
    await store.configure("other", kind=WORK)
    await push(store, "w", b"1", transaction_id="a")
    await push(store, "other", b"2", transaction_id="a")
    plain = await push(store, "w", b"3")

    async def found(queue: str, transaction_id: str) -> list[bytes]:
        page = await store.list_items(queue, transaction_id=transaction_id)
        return [item.payload for item in page.rows]

    assert await found("w", "a") == [b"1"]
    assert await found("other", "a") == [b"2"]
    assert await found("w", plain.transaction_id) == [b"3"]
    assert await found("w", "b") == []
    assert await found("other", plain.transaction_id) == []


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
    rows = (await store.get_item(item_id)).history
    for row, (number, started, ended, outcome, consumer, error, result) in zip(
        rows, expected, strict=True
    ):
        assert (row.attempt, row.started_at, row.ended_at) == (number, started, ended)
        assert (row.outcome, row.consumer) == (outcome, consumer)
        if outcome not in ("expired", "cancelled"):
            assert (row.error, row.result) == (error, result)
    logged = await every(store.list_attempts, queue="w", limit=1)
    assert [(row.item_id, row.queue) for row in logged] == [(item_id, "w")] * 4
    names = Attempt.__struct_fields__
    assert [Attempt(**{name: getattr(row, name) for name in names}) for row in logged] == rows
    await store.retry_item(item_id)
    await attempt(1, "cancelled")
    assert (await store.get_item(item_id)).history[-1].outcome is AttemptOutcome.CANCELLED
    await store.retry_item(item_id)
    await attempt(1, "dead")
    assert (await store.get_item(item_id)).history[-1].outcome is AttemptOutcome.DEAD


async def test_output_is_kept_when_an_attempt_fails_for_good(store: Store) -> None:
    [item_id] = await work(store, maxAttempts=1)
    message, lease = await pop_one(store, "w")
    result = b'{"exitCode":1,"stdout":"%s"}' % (b"x" * 200_000)
    await ack(store, message, lease, FAILED, error="exit 1", result=result)
    [row] = (await store.get_item(item_id)).history
    assert (row.outcome, row.error, row.result) == (AttemptOutcome.FAILED, "exit 1", result)


async def test_cancelling_what_was_never_leased_leaves_no_attempt(store: Store) -> None:
    [item_id] = await work(store)
    await store.cancel_item(item_id)
    assert (await store.get_item(item_id)).history == []


async def test_a_whole_lease_completed_at_once_leaves_a_row_for_each_item(store: Store) -> None:
    ids = await work(store, 3)
    await ack_all(store, await pop(store, "w", 3), result=b'"r"')
    for item_id in ids:
        [row] = (await store.get_item(item_id)).history
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
        PushItem("c", b"3", priority=9, max_attempts=7, backoff_base=1.5),
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
        assert item.backoff_base == (pushed.backoff_base or 2)
        assert item.run_at == (later if pushed.payload in (b"1", b"4") else None)
    assert [answer.seq for answer in answers] == [1, 1, 1, 2, 2, 2]
    for queue, ready, scheduled in (("a", 2, 0), ("b", 1, 1), ("c", 1, 1)):
        row = await stats(store, queue)
        assert (row.states["ready"], row.states["scheduled"]) == (ready, scheduled)
