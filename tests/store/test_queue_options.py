"""Options that hold messages back, bury, refuse or remove them: each takes effect, and exactly."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from monarq.clock import DAY, SECOND, ManualClock
from monarq.errors import QueueFullError, TransactionFailedError
from monarq.model import Ack, AckStatus, DeadLetterFilter, Push, PushItem, PushStatus, StartFrom
from monarq.store import Store
from tests.store.calls import (
    ack,
    ack_all,
    code_of,
    pop,
    pop_one,
    push,
    push_items,
    push_many,
    seqs,
    transaction,
)
from tests.store.conftest import OpenStore
from tests.store.scenarios import (
    DEAD,
    FAILED,
    RELEASE,
    WORK,
    cursor_row,
    dead_letters,
    drain,
    every,
    group_row,
    let_time_work,
    nothing_changes,
    stats,
    stored_payloads,
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


# --- maxSize ---


async def test_a_request_that_would_pass_max_size_is_refused_whole(store: Store) -> None:
    await store.configure("q", options={"maxSize": 3})
    await push_many(store, "q", 2)
    async with nothing_changes(store):
        with pytest.raises(QueueFullError):
            await push_many(store, "q", 2)
    assert (await push(store, "q")).seq == 3
    with pytest.raises(QueueFullError):
        await push(store, "q")


async def test_max_size_counts_over_all_partitions(store: Store) -> None:
    await store.configure("q", options={"maxSize": 3})
    for partition in "abc":
        await push(store, "q", partition=partition)
    with pytest.raises(QueueFullError):
        await push(store, "q", partition="d")
    assert [part.partition for part in await store.export_plan("q")] == ["a", "b", "c"]


async def test_requests_of_one_call_fill_the_queue_in_order(store: Store) -> None:
    await store.configure("q", options={"maxSize": 3})

    def request(count: int, queue: str = "q") -> Push:
        return Push([PushItem(queue, b"1")] * count)

    outcomes = await store.push(
        [request(2), request(2), request(5, "other"), request(1), request(1)]
    )
    codes = [code_of(outcome) for outcome in outcomes]
    assert codes == [None, "queue_full", None, None, "queue_full"]
    assert (await stats(store, "q")).stored == 3


async def test_a_full_queue_takes_down_the_whole_request_and_only_that(store: Store) -> None:
    await store.configure("q", options={"maxSize": 1})
    mixed = Push([PushItem("other", b"1"), PushItem("q", b"1"), PushItem("q", b"2")])
    plain = Push([PushItem("other", b"2")])
    assert [code_of(o) for o in await store.push([mixed, plain])] == ["queue_full", None]
    assert await stored_payloads(store, "other") == [b"2"]
    assert (await push(store, "q")).seq == 1


async def test_duplicates_do_not_count_against_max_size(store: Store) -> None:
    await store.configure("q", options={"maxSize": 3})
    await push_items(store, *(PushItem("q", b"1", transaction_id=name) for name in "ab"))
    answers = await push_items(
        store, *(PushItem("q", b"2", transaction_id=name) for name in "abcacb")
    )
    assert [answer.seq for answer in answers] == [1, 2, 3, 1, 3, 2]
    answers = await push_items(store, *(PushItem("q", b"3", transaction_id=name) for name in "cba"))
    assert {answer.status for answer in answers} == {PushStatus.DUPLICATE}
    with pytest.raises(QueueFullError):
        await push(store, "q", transaction_id="d")


async def test_the_group_that_is_furthest_behind_decides_how_full_a_queue_is(
    store: Store,
) -> None:
    await store.configure("q", options={"maxSize": 4})
    await push_many(store, "q", 4)
    await store.subscribe("slow", StartFrom.ALL, queue="q")
    assert len(await drain(store, "q", group="quick")) == 4
    with pytest.raises(QueueFullError):
        await push(store, "q")
    popped = await pop(store, "q", 2, group="slow")
    with pytest.raises(QueueFullError):
        await push(store, "q")
    await ack_all(store, popped, group="slow")
    await push_many(store, "q", 2)
    with pytest.raises(QueueFullError):
        await push(store, "q")
    assert await store.delete_group("slow") == 1
    await push_many(store, "q", 2)
    with pytest.raises(QueueFullError):
        await push(store, "q")


async def test_without_a_group_everything_stored_counts_and_a_new_group_makes_room(
    store: Store,
) -> None:
    await store.configure("q", options={"maxSize": 2})
    await push_many(store, "q", 2)
    with pytest.raises(QueueFullError):
        await push(store, "q")
    await store.subscribe("g", StartFrom.NEW, queue="q")
    await push_many(store, "q", 2)
    with pytest.raises(QueueFullError):
        await push(store, "q")


async def test_the_dead_make_room(store: Store) -> None:
    await store.configure("q", options={"maxSize": 1})
    await push(store, "q")
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, DEAD)
    await push(store, "q")


async def test_retention_makes_room(store: Store, clock: ManualClock) -> None:
    await store.configure("q", options={"maxSize": 2, "retentionSeconds": 100})
    await push_many(store, "q", 2)
    clock.advance(101)
    await let_time_work(store)
    await push_many(store, "q", 2)
    await store.subscribe("g", StartFrom.ALL, queue="q")
    clock.advance(101)
    await let_time_work(store)
    await push_many(store, "q", 2)
    with pytest.raises(QueueFullError):
        await push(store, "q")


async def test_a_full_work_queue_has_what_is_scheduled_ready_and_leased(store: Store) -> None:
    await store.configure("w", kind=WORK, options={"maxSize": 3})
    await push(store, "w", delay_seconds=100)
    await push_many(store, "w", 2)
    item, lease = await pop_one(store, "w")
    with pytest.raises(QueueFullError):
        await push(store, "w")
    await ack(store, item, lease)
    await push(store, "w")
    item, lease = await pop_one(store, "w")
    await ack(store, item, lease, DEAD)
    last = await push(store, "w")
    with pytest.raises(QueueFullError):
        await push(store, "w")
    await store.cancel_item(last.message_id)
    await push(store, "w")


async def test_max_size_lowered_below_what_is_there_refuses_and_drops_nothing(
    store: Store,
) -> None:
    await push_many(store, "q", 5)
    await store.configure("q", options={"maxSize": 2})
    with pytest.raises(QueueFullError):
        await push(store, "q")
    assert len(await drain(store, "q")) == 5
    await push_many(store, "q", 2)
    await store.configure("q", options={"maxSize": 0})
    await push_many(store, "q", 100)


async def test_two_stores_at_once_do_not_overfill_a_queue(
    store: Store, open_another: OpenStore
) -> None:
    other = await open_another()
    await store.configure("q", options={"maxSize": 10})
    await store.configure("w", kind=WORK, options={"maxSize": 10})
    for queue in ("q", "w"):
        outcomes = await asyncio.gather(
            *(push(through, queue) for through in (store, other) for _ in range(10)),
            return_exceptions=True,
        )
        codes = [code_of(outcome) for outcome in outcomes]  # type: ignore[arg-type]
        assert codes.count(None) == codes.count("queue_full") == 10
        assert (await stats(store, queue)).pending == 10


async def test_a_transaction_that_acks_does_not_make_room_for_its_own_pushes(
    store: Store,
) -> None:
    """The pushes of a transaction are made first."""
    await store.configure("q", options={"maxSize": 1})
    await push(store, "q")
    popped = await pop(store, "q")
    async with nothing_changes(store):
        with pytest.raises(TransactionFailedError) as caught:
            await transaction(store, Ack(lease_id=popped.lease_id), Push([PushItem("q", b"2")]))
        assert caught.value.cause.code == "queue_full"
        assert caught.value.operation == 1


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


# --- retention ---


async def test_a_message_goes_when_its_retention_is_over_consumed_or_not(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 100, "completedRetentionSeconds": 0})
    await push(store, "q", b"1")
    await drain(store, "q", group="consumed it")
    clock.advance(60)
    await push(store, "q", b"2")
    clock.advance(39.999999)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == [b"1", b"2"]
    clock.advance(1)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == [b"2"]
    clock.advance(60)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == []
    row = await stats(store, "q")
    assert (row.stored, row.pending, row.pushed) == (0, 0, 2)


async def test_an_idle_group_does_not_pin_retention_and_goes_on_with_what_is_kept(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    await push_many(store, "q", 3)
    await store.subscribe("idle", StartFrom.ALL, queue="q")
    popped = await pop(store, "q", 1, group="halfway")
    await ack_all(store, popped, group="halfway")
    clock.advance(60)
    await push_many(store, "q", 2)
    clock.advance(41)
    await let_time_work(store)
    for group in ("idle", "halfway"):
        assert (await group_row(store, "q", group)).lag == 2
        assert (await cursor_row(store, "q", group)).position == 3
        assert await seqs(store, "q", group=group) == [4, 5]


async def test_an_idle_group_whose_messages_all_went_is_drained_and_gets_the_next_push(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    await push_many(store, "q", 3)
    await store.subscribe("idle", StartFrom.ALL, queue="q")
    clock.advance(101)
    await let_time_work(store)
    cursor = await cursor_row(store, "q", "idle")
    assert (cursor.position, cursor.lag, cursor.available_at) == (3, 0, None)
    popped = await pop(store, "q", group="idle")
    assert (popped.messages, popped.next_at) == ([], None)
    assert (await push(store, "q")).seq == 4
    assert await seqs(store, "q", group="idle") == [4]


async def test_what_every_group_consumed_goes_earlier(store: Store, clock: ManualClock) -> None:
    await store.configure(
        "q", options={"retentionSeconds": 100_000, "completedRetentionSeconds": 100}
    )
    await push(store, "q", b"1")
    await push(store, "q", b"2")
    await drain(store, "q", group="g1")
    popped = await pop(store, "q", group="g2")
    await ack_all(store, popped, group="g2")
    clock.advance(99.999999)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == [b"1", b"2"]
    clock.advance(1)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == [b"2"]
    await drain(store, "q", group="g2")
    clock.advance(600)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == []


async def test_the_rest_of_a_push_that_was_consumed_in_part_is_kept_and_delivered(
    store: Store, clock: ManualClock
) -> None:
    await store.configure(
        "q", options={"retentionSeconds": 100_000, "completedRetentionSeconds": 100}
    )
    await push_items(store, *(PushItem("q", b"%d" % number) for number in range(1, 11)))
    popped = await pop(store, "q", 4)
    await ack_all(store, popped)
    for _ in range(3):
        clock.advance(200)
        await let_time_work(store)
    assert await seqs(store, "q") == [5, 6, 7, 8, 9, 10]


async def test_a_look_just_before_its_time_leaves_a_message_alone(
    store: Store, clock: ManualClock
) -> None:
    """What is consumed goes sooner, so that it is looked at more often than its own time says."""
    await store.configure("q", options={"retentionSeconds": 100, "completedRetentionSeconds": 10})
    await push(store, "q", b"1")
    await store.subscribe("idle", StartFrom.ALL, queue="q")
    clock.advance(9.999999)
    for _ in range(10):
        await let_time_work(store)
        assert await stored_payloads(store, "q") == [b"1"]
        clock.advance(10)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == []


async def test_without_a_group_nothing_is_consumed(store: Store, clock: ManualClock) -> None:
    await store.configure("q", options={"retentionSeconds": 0, "completedRetentionSeconds": 100})
    await push(store, "q", b"1")
    clock.advance(10_000)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == [b"1"]


async def test_a_message_that_is_leased_or_waits_for_its_retry_is_not_consumed(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"completedRetentionSeconds": 100, "retryDelay": 1_000_000})
    await push(store, "q", b"1", partition="leased")
    await push(store, "q", b"2", partition="failed")
    await pop(store, "q", partition="leased", lease_seconds=3600)
    message, lease = await pop_one(store, "q", partition="failed")
    await ack(store, message, lease, FAILED)
    clock.advance(200)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == [b"1", b"2"]


@pytest.mark.parametrize(
    "options",
    [
        {"retentionEnabled": False, "retentionSeconds": 10, "completedRetentionSeconds": 10},
        {"retentionSeconds": 0, "completedRetentionSeconds": 0},
    ],
)
async def test_retention_switched_off_keeps_for_ever(
    store: Store, clock: ManualClock, options: dict[str, object]
) -> None:
    await store.configure("q", options=options)
    await store.configure("w", kind=WORK, options=options)
    await push(store, "q", b"1")
    await drain(store, "q")
    await push(store, "w", b"1")
    await drain(store, "w")
    clock.advance(5 * 365 * 86_400)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == [b"1"]
    assert [item.state for item in await every(store.list_items, "w")] == ["done"]


async def test_retention_is_on_by_default(store: Store, clock: ManualClock) -> None:
    await push(store, "unconsumed")
    await push(store, "consumed")
    await drain(store, "consumed")
    clock.advance(86_400 + 1)
    await let_time_work(store)
    assert (await stats(store, "consumed")).stored == 0
    assert (await stats(store, "unconsumed")).stored == 1
    clock.advance(29 * 86_400)
    await let_time_work(store)
    assert (await stats(store, "unconsumed")).stored == 0


async def test_dead_letters_outlive_their_messages(store: Store, clock: ManualClock) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    await push(store, "q", b"kept", headers=b'{"a":1}')
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, DEAD, error="why")
    clock.advance(400 * 86_400)
    await let_time_work(store)
    assert await every(store.list_messages, "q") == []
    [letter] = await dead_letters(store)
    assert (letter.payload, letter.error, letter.headers) == (b"kept", "why", b'{"a":1}')


async def test_done_and_cancelled_items_go_that_long_after_they_finished(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("w", kind=WORK, options={"completedRetentionSeconds": 100})
    answers = await push_many(store, "w", 4)
    clock.advance(500)
    item, lease = await pop_one(store, "w")
    await ack(store, item, lease)
    clock.advance(50)
    await store.cancel_item(answers[1].message_id)
    clock.advance(49)
    await let_time_work(store)
    assert (await stats(store, "w")).stored == 4
    clock.advance(2)
    await let_time_work(store)
    assert [row.seq for row in await every(store.list_items, "w")] == [2, 3, 4]
    clock.advance(50)
    await let_time_work(store)
    assert [row.seq for row in await every(store.list_items, "w")] == [3, 4]


async def test_retention_removes_old_backlogs_in_bounded_steps_and_all_of_them_in_the_end(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    for n in range(30):
        await push_many(store, "q", 2, partition=f"p{n % 5}")
    clock.advance(101)
    steps = 0
    while (await stats(store, "q")).stored:
        before = (await stats(store, "q")).stored
        report = await store.lifecycle(limit=5)
        assert report.removed > 0
        assert report.next_at is not None
        assert before - (await stats(store, "q")).stored <= 40
        steps += 1
        assert steps < 50
    assert steps > 1


async def test_an_empty_drained_partition_goes_after_seven_days_and_its_number_for_ever(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    first = await push(store, "q", b"1", partition="p")
    await drain(store, "q", group="g")
    clock.advance(101)
    await let_time_work(store)
    assert [part.partition for part in await store.export_plan("q")] == ["p"]
    clock.advance(7 * 86_400 + 200)
    await let_time_work(store)
    assert await store.export_plan("q") == []
    assert (await stats(store, "q")).partitions == 0
    again = await push(store, "q", b"2", partition="p")
    assert again.partition_id > first.partition_id
    assert again.seq == 1
    assert [m.payload for m in await drain(store, "q", group="g")] == [b"2"]


async def test_a_partition_stays_for_seven_days_from_when_it_became_empty(
    store: Store, clock: ManualClock
) -> None:
    """Not from the last push: what was pushed may have been kept for longer than that."""
    await store.configure("q", options={"retentionSeconds": 10 * 86_400})
    await push(store, "q", partition="p")
    clock.advance(10 * 86_400 + 1)
    await let_time_work(store)
    assert (await stats(store, "q")).stored == 0
    clock.advance(7 * 86_400 - 100)
    await let_time_work(store)
    assert [part.partition for part in await store.export_plan("q")] == ["p"]
    clock.advance(200)
    await let_time_work(store)
    assert await store.export_plan("q") == []


async def clear(store: Store) -> None:
    await store.clear_queue("q")


async def change_a_timed_option(store: Store) -> None:
    await store.configure("q", options={"retentionSeconds": 20 * 86_400})


async def note_its_archive(store: Store) -> None:
    await store.set_archived("q", {part.partition_id: 1 for part in await store.export_plan("q")})


@pytest.mark.parametrize("first", [clear, let_time_work], ids=["cleared", "retained"])
@pytest.mark.parametrize("then", [clear, change_a_timed_option, note_its_archive])
async def test_nothing_that_makes_the_lifecycle_look_at_an_empty_partition_shortens_its_days(
    store: Store,
    clock: ManualClock,
    first: Callable[[Store], Awaitable[object]],
    then: Callable[[Store], Awaitable[object]],
) -> None:
    await store.configure("q", options={"retentionSeconds": 10 * 86_400})
    await push(store, "q", partition="p")
    clock.advance(10 * 86_400 + 1)
    await first(store)
    for _ in range(2):
        await let_time_work(store)
        assert [part.partition for part in await store.export_plan("q")] == ["p"]
        clock.advance(3 * 86_400)
        await then(store)
    await let_time_work(store)
    assert [part.partition for part in await store.export_plan("q")] == ["p"]
    clock.advance(86_400 + 200)
    await let_time_work(store)
    assert await store.export_plan("q") == []


async def test_a_partition_with_something_in_it_does_not_go(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 0, "completedRetentionSeconds": 0})
    await push(store, "q")
    clock.advance(DAY // SECOND * 100)
    await let_time_work(store)
    assert len(await store.export_plan("q")) == 1


async def test_logs_go_after_seven_days(store: Store, clock: ManualClock) -> None:
    await store.configure("w", kind=WORK)
    for queue in ("q", "w"):
        await push(store, queue)
        await drain(store, queue)
    assert len(await every(store.list_deliveries)) == 1
    assert len(await every(store.list_attempts)) == 1
    clock.advance(6 * 86_400)
    await let_time_work(store)
    assert len(await every(store.list_deliveries)) == 1
    clock.advance(2 * 86_400)
    await let_time_work(store)
    assert await every(store.list_deliveries) == []
    assert await every(store.list_attempts) == []
