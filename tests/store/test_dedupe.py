"""A transaction id is stored once per partition: in one request, across calls, and at once."""

import asyncio

import pytest

from monarq.clock import ManualClock
from monarq.errors import InvalidRequestError, MonarqError, NotFoundError
from monarq.model import Ack, Push, PushItem, PushStatus
from monarq.store import Store
from tests.store.calls import ack, pop, pop_one, push, push_items, push_many, unwrap
from tests.store.conftest import OpenStore
from tests.store.scenarios import (
    WORK,
    drain,
    every,
    let_time_work,
    nothing_changes,
    stats,
    stored_payloads,
)

QUEUED, DUPLICATE = PushStatus.QUEUED, PushStatus.DUPLICATE


async def test_the_same_id_twice_in_one_request_is_stored_once(store: Store) -> None:
    items = [PushItem("q", b"%d" % n, transaction_id=f"id{n % 3}") for n in range(7)]
    answers = await push_items(store, *items)
    assert [answer.status for answer in answers] == [QUEUED] * 3 + [DUPLICATE] * 4
    assert [answer.seq for answer in answers] == [1, 2, 3, 1, 2, 3, 1]
    assert [answer.transaction_id for answer in answers] == [f"id{n % 3}" for n in range(7)]
    assert await stored_payloads(store, "q") == [b"0", b"1", b"2"]


async def test_duplicates_between_new_ones_leave_no_hole(store: Store) -> None:
    ids = ["a", None, "a", "b", None, "b", "c", "a", None]
    answers = await push_items(store, *(PushItem("q", b"1", transaction_id=name) for name in ids))
    assert [answer.seq for answer in answers] == [1, 2, 1, 3, 4, 3, 5, 1, 6]
    assert [row.seq for row in await every(store.list_messages, "q")] == [1, 2, 3, 4, 5, 6]


async def test_the_same_id_in_requests_of_one_call_is_stored_once(store: Store) -> None:
    request = Push([PushItem("q", b"1", transaction_id="a"), PushItem("q", b"2")])
    outcomes = await store.push([request] * 3)
    statuses, seqs = [], []
    for outcome in outcomes:
        assert not isinstance(outcome, MonarqError)
        statuses.append([answer.status for answer in outcome])
        seqs.append([answer.seq for answer in outcome])
    assert statuses == [[QUEUED, QUEUED], [DUPLICATE, QUEUED], [DUPLICATE, QUEUED]]
    assert seqs == [[1, 2], [1, 3], [1, 4]]


async def test_an_id_of_a_refused_request_is_not_taken(store: Store) -> None:
    refused = Push([PushItem("q", b"1", transaction_id="a"), PushItem("q", b"1", priority=1)])
    good = Push([PushItem("q", b"2", transaction_id="a")])
    first, second = await store.push([refused, good])
    assert isinstance(first, InvalidRequestError)
    assert not isinstance(second, MonarqError)
    assert [answer.status for answer in second] == [QUEUED]
    assert await stored_payloads(store, "q") == [b"2"]


async def test_the_same_id_in_a_later_call_names_the_first_one(store: Store) -> None:
    await push_many(store, "q", 4)
    first = await push(store, "q", b"first", transaction_id="a")
    for _ in range(3):
        again = await push(store, "q", b"again", transaction_id="a")
        assert again.status is DUPLICATE
        assert (again.partition_id, again.seq) == (first.partition_id, 5)
        assert again.message_id == first.message_id
    assert (await store.get_message(first.partition_id, "a")).payload == b"first"
    assert (await stats(store, "q")).pushed == 5


async def test_the_same_id_in_other_partitions_and_queues_is_another_message(
    store: Store,
) -> None:
    answers = [
        await push(store, queue, partition=partition, transaction_id="a")
        for queue in ("q1", "q2")
        for partition in ("x", "y")
    ]
    assert [(answer.status, answer.seq) for answer in answers] == [(QUEUED, 1)] * 4


async def test_an_id_stays_taken_after_its_message_was_consumed_by_every_group(
    store: Store,
) -> None:
    await push(store, "q", transaction_id="a")
    assert len(await drain(store, "q", group="g1")) == 1
    assert len(await drain(store, "q", group="g2")) == 1
    assert (await push(store, "q", transaction_id="a")).status is DUPLICATE
    assert await drain(store, "q", group="g1") == []


async def test_an_id_stays_taken_after_its_message_was_deleted(store: Store) -> None:
    answer = await push(store, "q", b"secret", transaction_id="a")
    await store.delete_message(answer.partition_id, "a")
    again = await push(store, "q", transaction_id="a")
    assert (again.status, again.seq) == (DUPLICATE, 1)


async def test_an_id_is_free_again_once_retention_took_its_message(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    await push(store, "q", transaction_id="a")
    clock.advance(101)
    await let_time_work(store)
    again = await push(store, "q", transaction_id="a")
    assert (again.status, again.seq) == (QUEUED, 2)


async def test_an_id_is_free_again_once_the_queue_was_cleared(store: Store) -> None:
    await push(store, "q", transaction_id="a")
    await store.clear_queue("q")
    again = await push(store, "q", b"new", transaction_id="a")
    assert again.status is QUEUED
    assert await stored_payloads(store, "q") == [b"new"]


async def test_two_at_once_with_one_id_store_one_message_with_one_seq(store: Store) -> None:
    for n in range(5):
        answers = await asyncio.gather(
            *(push(store, "q", transaction_id=f"id{n}") for _ in range(10))
        )
        assert sorted(answer.status for answer in answers) == [DUPLICATE] * 9 + [QUEUED]
        assert {answer.seq for answer in answers} == {n + 1}


async def test_two_stores_at_once_with_one_id_store_one_message_with_one_seq(
    store: Store, open_another: OpenStore
) -> None:
    stores = [store, await open_another()]
    for n in range(8):
        answers = await asyncio.gather(
            *(push(stores[k % 2], "q", transaction_id=f"id{n}") for k in range(4))
        )
        assert sorted(answer.status for answer in answers) == [DUPLICATE] * 3 + [QUEUED]
        assert {answer.seq for answer in answers} == {n + 1}
    assert (await stats(store, "q")).stored == 8


async def test_crossing_batches_of_ids_from_two_stores_store_each_id_once(
    store: Store, open_another: OpenStore
) -> None:
    stores = [store, await open_another()]
    forward = [PushItem("q", b"1", f"p{n % 3}", f"id{n}") for n in range(30)]
    answered = await asyncio.gather(
        *(push_items(stores[k % 2], *(forward if k < 2 else forward[::-1])) for k in range(4))
    )
    answered[2].reverse()
    answered[3].reverse()
    for answers in zip(*answered, strict=True):
        assert sorted(answer.status for answer in answers) == [DUPLICATE] * 3 + [QUEUED]
        assert len({answer.message_id for answer in answers}) == 1
    rows = await every(store.list_messages, "q")
    assert sorted(row.transaction_id for row in rows) == sorted(f"id{n}" for n in range(30))


async def test_work_items_are_deduped_too_while_they_are_kept(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("w", kind=WORK, options={"completedRetentionSeconds": 50})
    answers = await push_items(
        store, *(PushItem("w", b"%d" % n, transaction_id="a") for n in range(3))
    )
    assert [answer.status for answer in answers] == [QUEUED, DUPLICATE, DUPLICATE]
    assert {answer.seq for answer in answers} == {1}
    item, lease = await pop_one(store, "w")
    assert (await push(store, "w", transaction_id="a")).status is DUPLICATE
    await ack(store, item, lease)
    assert (await push(store, "w", transaction_id="a")).status is DUPLICATE
    clock.advance(51)
    await let_time_work(store)
    again = await push(store, "w", transaction_id="a")
    assert (again.status, again.seq) == (QUEUED, 2)


async def test_two_stores_at_once_with_one_id_store_one_work_item(
    store: Store, open_another: OpenStore
) -> None:
    await store.configure("w", kind=WORK)
    stores = [store, await open_another()]
    for n in range(5):
        answers = await asyncio.gather(
            *(push(stores[k % 2], "w", transaction_id=f"id{n}") for k in range(4))
        )
        assert sorted(answer.status for answer in answers) == [DUPLICATE] * 3 + [QUEUED]
        assert {answer.seq for answer in answers} == {n + 1}


# --- ids that the store made up ---


async def test_a_made_up_id_pushed_back_to_its_partition_is_a_duplicate_of_that_message(
    store: Store,
) -> None:
    answers = await push_many(store, "q", 3)
    for answer in answers:
        again = await push(store, "q", transaction_id=answer.transaction_id)
        assert (again.status, again.seq) == (DUPLICATE, answer.seq)
        assert again.transaction_id == answer.transaction_id
    await drain(store, "q")
    again = await push(store, "q", transaction_id=answers[0].transaction_id)
    assert (again.status, again.seq) == (DUPLICATE, 1)
    assert (await stats(store, "q")).stored == 3


async def test_a_made_up_id_of_a_message_with_an_id_of_its_own_is_refused(store: Store) -> None:
    answer = await push(store, "q", transaction_id="own")
    async with nothing_changes(store):
        with pytest.raises(InvalidRequestError):
            await push(store, "q", transaction_id=answer.message_id)


async def test_a_made_up_id_that_its_partition_has_not_given_yet_is_refused(
    store: Store,
) -> None:
    """Otherwise it would collide with the message that gets this seq later."""
    answer = await push(store, "q")
    async with nothing_changes(store):
        for seq in (2, 3, 10**17):
            with pytest.raises(InvalidRequestError):
                await push(store, "q", transaction_id=f"{answer.partition_id}-{seq}")
    assert (await push(store, "q")).seq == 2


async def test_a_made_up_id_whose_message_is_no_longer_kept_is_refused(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    answer = await push(store, "q")
    clock.advance(101)
    await let_time_work(store)
    await push(store, "q")
    async with nothing_changes(store):
        with pytest.raises(InvalidRequestError):
            await push(store, "q", transaction_id=answer.transaction_id)


async def test_a_made_up_id_of_another_partition_is_an_id_like_any_other(store: Store) -> None:
    first = await push(store, "q", partition="a")
    await push_many(store, "q", 2, partition="b")
    copy = await push(store, "q", b"copy", partition="b", transaction_id=first.transaction_id)
    assert (copy.status, copy.seq) == (QUEUED, 3)
    again = await push(store, "q", partition="b", transaction_id=first.transaction_id)
    assert (again.status, again.seq) == (DUPLICATE, 3)
    stored = await store.get_message(copy.partition_id, first.transaction_id)
    assert (stored.payload, stored.seq) == (b"copy", 3)
    assert (await store.get_message(first.partition_id, first.transaction_id)).seq == 1


async def test_a_number_like_id_for_a_partition_that_is_only_made_by_the_push_is_an_id(
    store: Store,
) -> None:
    answer = await push(store, "q", transaction_id="999999-1")
    assert (answer.status, answer.transaction_id) == (QUEUED, "999999-1")
    assert (await push(store, "q", transaction_id="999999-1")).status is DUPLICATE


async def test_a_message_with_an_id_of_its_own_is_found_and_acked_by_its_made_up_one_too(
    store: Store,
) -> None:
    answer = await push(store, "q", transaction_id="own")
    for name in ("own", answer.message_id):
        found = await store.get_message(answer.partition_id, name)
        assert (found.seq, found.transaction_id) == (1, "own")
    with pytest.raises(NotFoundError):
        await store.get_message(answer.partition_id, f"{answer.partition_id}-2")
    popped = await pop(store, "q")
    request = Ack(
        transaction_id=answer.message_id,
        partition_id=answer.partition_id,
        lease_id=popped.lease_id,
    )
    assert unwrap(await store.ack([request])).lease_released


async def test_a_message_can_be_acked_by_an_id_that_looks_like_another_partitions(
    store: Store,
) -> None:
    first = await push(store, "q", partition="a")
    copy = await push(store, "q", partition="b", transaction_id=first.transaction_id)
    message, lease = await pop_one(store, "q", partition="b")
    assert message.transaction_id == first.transaction_id
    assert (await ack(store, message, lease)).lease_released
    assert (await store.get_message(copy.partition_id, copy.transaction_id)).groups[
        "__QUEUE_MODE__"
    ] == "done"
    assert (await store.get_message(first.partition_id, first.transaction_id)).groups[
        "__QUEUE_MODE__"
    ] == "pending"


async def test_made_up_ids_of_work_items_pushed_back_are_duplicates_too(store: Store) -> None:
    await store.configure("w", kind=WORK)
    answer = await push(store, "w")
    again = await push(store, "w", transaction_id=answer.transaction_id)
    assert (again.status, again.seq) == (DUPLICATE, 1)
    with pytest.raises(InvalidRequestError):
        await push(store, "w", transaction_id=f"{answer.partition_id}-2")
