"""Where two features meet: retention and leases, deletion and replay, redrive and clean-up."""

import random

import pytest

from monarq.clock import ManualClock
from monarq.errors import LeaseError, NotFoundError
from monarq.model import Ack, Push, PushItem, Renew, SeekTo, StartFrom
from monarq.operations.groups import Seek
from monarq.store import Store
from tests.store.calls import (
    ack,
    ack_all,
    ack_of,
    code_of,
    pop,
    pop_one,
    push,
    push_items,
    push_many,
    seqs,
    transaction,
)
from tests.store.scenarios import (
    COMPLETED,
    DEAD,
    FAILED,
    WORK,
    cursor_row,
    dead_letters,
    drain,
    group_row,
    let_time_work,
    numbers,
    stats,
)

pytestmark = pytest.mark.smoke


async def test_a_message_that_retention_takes_under_a_live_lease_does_not_stop_its_group(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    await push_many(store, "q", 2)
    popped = await pop(store, "q", 2, lease_seconds=1000)
    clock.advance(101)
    await push(store, "q")
    await let_time_work(store)
    for message in popped.messages:
        try:
            await ack(store, message, popped.lease_id)
        except (NotFoundError, LeaseError):
            continue
    clock.advance(1000)
    await let_time_work(store)
    await push(store, "q")
    assert (await seqs(store, "q"))[-1:] == [4]


async def test_retention_takes_what_was_acked_out_of_order_with_the_rest_and_counts_right(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    await push_many(store, "q", 4)
    popped = await pop(store, "q", 4, lease_seconds=10)
    await ack(store, popped.messages[1], popped.lease_id)
    await ack(store, popped.messages[3], popped.lease_id, FAILED)
    clock.advance(60)
    await push_many(store, "q", 2)
    clock.advance(41)
    await let_time_work(store)
    again = await pop(store, "q", 10)
    assert [(m.seq, m.attempts) for m in again.messages] == [(5, 1), (6, 1)]
    await ack_all(store, again)
    assert (await group_row(store, "q", "__QUEUE_MODE__")).lag == 0


async def test_a_deleted_message_does_not_come_back_with_a_seek(store: Store) -> None:
    answers = await push_many(store, "q", 3)
    await drain(store, "q", group="g")
    await store.delete_message(answers[1].partition_id, answers[1].transaction_id)
    await store.call(Seek(group="g", queue="q", to=SeekTo.START))
    assert [m.seq for m in await drain(store, "q", group="g")] == [1, 3]


async def test_a_deleted_message_that_had_failed_no_longer_blocks(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retryDelay": 10_000})
    await push_many(store, "q", 2)
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, FAILED)
    await store.delete_message(message.partition_id, message.transaction_id)
    clock.advance(10)
    assert await seqs(store, "q") == [2]


async def test_a_deleted_message_does_not_become_a_dead_letter(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"maxWaitTimeSeconds": 10})
    answers = await push_many(store, "q", 2)
    await store.subscribe("g", StartFrom.ALL, queue="q")
    await store.delete_message(answers[0].partition_id, answers[0].transaction_id)
    clock.advance(10)
    await let_time_work(store)
    assert [letter.seq for letter in await dead_letters(store)] == [2]


async def test_a_letter_can_be_redriven_after_its_partition_was_removed(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    await push(store, "q", b"1", partition="p")
    message, lease = await pop_one(store, "q", group="g")
    await ack(store, message, lease, DEAD, group="g")
    clock.advance(200)
    await let_time_work(store)
    clock.advance(8 * 86_400)
    await let_time_work(store)
    assert await store.export_plan("q") == []
    assert await store.redrive(all=True) == 1
    [back] = await drain(store, "q", group="g")
    assert (back.partition, back.payload) == ("p", b"1")


async def test_a_letter_can_be_redriven_after_its_group_was_deleted_without_being_lost(
    store: Store,
) -> None:
    await push(store, "q", b"1")
    message, lease = await pop_one(store, "q", group="g")
    await ack(store, message, lease, DEAD, group="g")
    await store.delete_group("g")
    assert await store.redrive(all=True) == 1
    assert await dead_letters(store) == []
    got = await drain(store, "q", group="g")
    assert [m.payload for m in got][-1] == b"1"
    assert any(m.seq == 2 for m in got)


async def test_clear_forgets_failures_so_that_the_next_message_is_not_held_back(
    store: Store,
) -> None:
    await store.configure("q", options={"retryDelay": 60_000})
    await push_many(store, "q", 3)
    popped = await pop(store, "q", 3)
    await ack(store, popped.messages[0], popped.lease_id, FAILED)
    await ack(store, popped.messages[2], popped.lease_id)
    await store.clear_queue("q")
    await push(store, "q", b"9")
    assert numbers(await pop(store, "q", 10)) == [9]


async def test_a_delay_and_a_window_hold_back_together(store: Store, clock: ManualClock) -> None:
    await store.configure("q", options={"delayedProcessing": 10, "windowBuffer": 4})
    await push(store, "q", b"1")
    clock.advance(5)
    assert (await pop(store, "q")).messages == []
    clock.advance(4)
    await push(store, "q", b"2")
    clock.advance(1)
    assert (await pop(store, "q")).messages == []
    clock.advance(3)
    assert numbers(await drain(store, "q")) == [1]
    clock.advance(6)
    assert numbers(await drain(store, "q")) == [2]


async def test_a_delay_longer_than_the_longest_wait_buries_everything(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"delayedProcessing": 20, "maxWaitTimeSeconds": 10})
    await push(store, "q")
    for _ in range(5):
        clock.advance(5)
        assert (await pop(store, "q")).messages == []
    assert len(await dead_letters(store)) == 1


async def test_a_group_deleted_everywhere_also_forgets_what_it_asked_of_a_namespace(
    store: Store, clock: ManualClock
) -> None:
    await push(store, "q1", b"1", namespace="ns")
    assert (await pop(store, namespace="ns", group="g", start=StartFrom.NEW)).messages == []
    clock.advance(1)
    await push(store, "q2", b"2", namespace="ns")
    await store.delete_group("g")
    assert sorted(numbers(await drain(store, namespace="ns", group="g"))) == [1, 2]


async def test_a_lease_is_renewed_twice_in_one_call_and_beside_a_bad_one(
    store: Store, clock: ManualClock
) -> None:
    await push(store, "q")
    popped = await pop(store, "q", lease_seconds=10)
    assert popped.lease_id
    outcomes = await store.renew(
        [
            Renew(popped.lease_id, 20),
            Renew("99-0123456789abcdef", 20),
            Renew(popped.lease_id, 60.5),
            Renew(popped.lease_id, 30),
        ]
    )
    assert [code_of(outcome) for outcome in outcomes] == [None, "lease_unknown", None, None]
    clock.advance(60)
    await ack_all(store, popped)


async def test_an_expiry_and_a_retry_at_once_through_the_lifecycle_keep_the_order(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retryDelay": 3000, "leaseTime": 5})
    for partition in "ab":
        await push_many(store, "q", 3, partition=partition)
    a = await pop(store, "q", 3)
    b = await pop(store, "q", 3)
    await ack(store, a.messages[0], a.lease_id, FAILED)
    await ack_all(store, b, FAILED)
    clock.advance(5)
    await let_time_work(store)
    got: dict[str, list[int]] = {}
    for message in await drain(store, "q", 2):
        got.setdefault(message.partition, []).append(message.seq)
    assert got == {"a": [1, 2, 3], "b": [1, 2, 3]}


async def test_a_transaction_may_kill_into_a_dead_queue_and_push_there_too(
    store: Store,
) -> None:
    await store.configure("grave")
    await store.configure("q", options={"deadQueue": "grave"})
    await push_many(store, "q", 2)
    popped = await pop(store, "q", 2)
    await transaction(
        store,
        Ack(status=DEAD, lease_id=popped.lease_id, error="both"),
        Push([PushItem("grave", b"3"), PushItem("q", b"4")]),
    )
    assert numbers(await drain(store, "grave")) == [3, 1, 2]
    assert numbers(await drain(store, "q")) == [4]


async def test_dead_letters_of_items_and_messages_do_not_mix(store: Store) -> None:
    await store.configure("w", kind=WORK)
    for queue in ("q", "w"):
        await push(store, queue, b"1")
        message, lease = await pop_one(store, queue)
        await ack(store, message, lease, DEAD)
    assert await store.redrive(queue="w") == 1
    assert [letter.queue for letter in await dead_letters(store)] == ["q"]
    assert (await stats(store, "q")).dead_letters == 1
    assert (await stats(store, "w")).dead_letters == 0


async def test_a_paused_queue_is_still_cleaned_up(store: Store, clock: ManualClock) -> None:
    await store.configure("q", options={"retentionSeconds": 100, "leaseTime": 10})
    await store.configure("w", kind=WORK, options={"leaseTime": 10})
    await push(store, "q")
    await push(store, "w")
    await pop(store, "w")
    for queue in ("q", "w"):
        await store.pause_queue(queue)
        await store.pause_queue(queue)
    clock.advance(101)
    await let_time_work(store)
    assert (await stats(store, "q")).stored == 0
    assert (await stats(store, "w")).states["ready"] == 1


@pytest.mark.parametrize("order", ["ack first", "seek first"])
async def test_an_ack_and_a_seek_in_either_order_leave_the_cursor_where_the_seek_put_it(
    store: Store, order: str
) -> None:
    await push_many(store, "q", 4)
    popped = await pop(store, "q", 2, group="g")
    seek = Seek(group="g", queue="q", seq=2)
    if order == "ack first":
        await ack_all(store, popped, COMPLETED, group="g")
        await store.call(seek)
    else:
        await store.call(seek)
        with pytest.raises(LeaseError):
            await ack_all(store, popped, group="g")
    assert (await cursor_row(store, "q", "g")).position == 1
    assert [m.seq for m in await drain(store, "q", group="g")] == [2, 3, 4]


async def test_a_big_batch_acked_in_random_order_over_several_leases_ends_complete(
    store: Store, clock: ManualClock
) -> None:
    """Many holes over several segments, as a slow crowd of workers makes them."""
    chance = random.Random(11)
    await store.configure("q", options={"retryLimit": 50})
    await push_many(store, "q", 700)
    await push_many(store, "q", 700)
    done: set[int] = set()
    most = 1400
    for _ in range(4):
        popped = await pop(store, "q", 2000, lease_seconds=10)
        left = [n for n in range(1, 1401) if n not in done]
        assert [m.seq for m in popped.messages] == left[:most]
        chosen = chance.sample(popped.messages, len(popped.messages) // 2)
        outcomes = await store.ack([ack_of(message, popped.lease_id) for message in chosen])
        assert {code_of(outcome) for outcome in outcomes} == {None}
        done |= {message.seq for message in chosen}
        most = (len(popped.messages) - len(chosen)) // 2
        clock.advance(10)
    while (last := await pop(store, "q", 2000)).messages:
        left = [n for n in range(1, 1401) if n not in done]
        assert [m.seq for m in last.messages] == left[: len(last.messages)]
        await ack_all(store, last)
        done |= {message.seq for message in last.messages}
    assert (await group_row(store, "q", "__QUEUE_MODE__")).lag == 0
    assert (await stats(store, "q")).completed == 1400


async def test_transaction_ids_of_a_whole_big_batch_are_found_for_dedupe_and_acks(
    store: Store,
) -> None:
    items = [PushItem("q", b"%d" % n, transaction_id=f"id {n}") for n in range(1_200)]
    await push_items(store, *items)
    again = await push_items(store, *items[::-7], PushItem("q", b"new", transaction_id="new"))
    assert [a.seq for a in again[:-1]] == [n + 1 for n in range(1_199, -1, -7)]
    assert again[-1].seq == 1_201
    popped = await pop(store, "q", 1_201)
    for n in (0, 999, 1_000, 1_200):
        await ack(store, popped.messages[n], popped.lease_id)
    assert (await ack_all(store, popped)).count == 1_197
