"""The delivery log, and the attempts of items."""

import pytest

from monarq.clock import ManualClock
from monarq.errors import LeaseError
from monarq.store import Store
from tests.store.calls import ack, ack_all, pop, pop_one, push, push_many
from tests.store.scenarios import (
    COMPLETED,
    DEAD,
    FAILED,
    RELEASE,
    RETRY,
    WORK,
    drain,
    every,
    let_time_work,
)


async def test_an_ack_of_a_whole_lease_leaves_one_row_not_one_a_message(
    store: Store, clock: ManualClock
) -> None:
    answers = await push_many(store, "q", 50)
    leased_at = clock.now()
    popped = await pop(store, "q", 40, group="g", consumer="me")
    clock.advance(3)
    await ack_all(store, popped, group="g")
    [row] = await every(store.list_deliveries, queue="q")
    assert (row.queue, row.partition, row.partition_id) == (
        "q",
        "Default",
        answers[0].partition_id,
    )
    assert (row.group, row.consumer) == ("g", "me")
    assert (row.leased_at, row.ended_at) == (leased_at, clock.now())
    assert (row.first_seq, row.last_seq) == (1, 40)
    assert (row.completed, row.failed, row.released, row.dead, row.expired) == (40, 0, 0, 0, 0)
    assert popped.lease_id
    assert row.lease_number == int(popped.lease_id.split("-")[0])


async def test_each_outcome_is_counted_in_the_log(store: Store, clock: ManualClock) -> None:
    await store.configure("q", options={"retryLimit": 1, "retryDelay": 0, "leaseTime": 10})
    await push_many(store, "q", 6)
    popped = await pop(store, "q", 6)
    for message, status in zip(
        popped.messages, (COMPLETED, FAILED, RELEASE, DEAD, RETRY), strict=False
    ):
        await ack(store, message, popped.lease_id, status, error="because")
    clock.advance(10)
    await let_time_work(store)
    rows = await every(store.list_deliveries, queue="q")
    totals = {
        name: sum(getattr(row, name) for row in rows)
        for name in ("completed", "failed", "released", "dead", "expired")
    }
    assert totals == {"completed": 1, "failed": 2, "released": 1, "dead": 1, "expired": 1}
    assert {row.error for row in rows if row.failed} == {"because"}
    assert all(1 <= row.first_seq <= row.last_seq <= 6 for row in rows)


async def test_a_lease_over_several_partitions_leaves_a_row_for_each(store: Store) -> None:
    for partition in "abc":
        await push_many(store, "q", 2, partition=partition)
    await ack_all(store, await pop(store, "q", 6, partitions=3))
    rows = await every(store.list_deliveries)
    assert sorted((row.partition, row.first_seq, row.last_seq) for row in rows) == [
        ("a", 1, 2),
        ("b", 1, 2),
        ("c", 1, 2),
    ]
    assert len({row.lease_number for row in rows}) == 1


async def test_auto_acked_deliveries_are_logged_too(store: Store) -> None:
    await push_many(store, "q", 3)
    await pop(store, "q", 3, auto_ack=True, consumer="me")
    [row] = await every(store.list_deliveries)
    assert (row.completed, row.first_seq, row.last_seq, row.consumer) == (3, 1, 3, "me")


async def test_the_log_still_names_a_group_that_was_deleted(store: Store) -> None:
    await push(store, "q")
    for _ in range(2):
        await pop(store, "q", auto_ack=True, group="g")
        await store.delete_group("g", queue="q")
    rows = await every(store.list_deliveries)
    assert [row.group for row in rows] == ["g", "g"]
    assert [row.group for row in await store.deliveries_of(rows[0].partition_id, 1)] == ["g", "g"]


async def test_the_log_is_paged_by_id_and_filtered_by_queue(store: Store) -> None:
    for n in range(6):
        await push(store, f"q{n % 2}")
        await drain(store, f"q{n % 2}")
    rows = await every(store.list_deliveries, limit=2)
    assert [row.queue for row in rows] == ["q0", "q1"] * 3
    ids = [row.id for row in rows]
    assert ids == sorted(set(ids))
    assert len(await every(store.list_deliveries, queue="q1", limit=1)) == 3


async def test_refused_acks_leave_no_row(store: Store, clock: ManualClock) -> None:
    await push(store, "q")
    message, lease = await pop_one(store, "q", lease_seconds=10)
    clock.advance(10)
    with pytest.raises(LeaseError):
        await ack(store, message, lease)
    assert await every(store.list_deliveries) == []


async def test_attempts_are_listed_in_the_order_they_ended_and_filtered_by_queue(
    store: Store,
) -> None:
    for queue in ("w1", "w2"):
        await store.configure(queue, kind=WORK)
        await push_many(store, queue, 3)
    for queue in ("w1", "w2"):
        popped = await pop(store, queue, 3)
        for n in (2, 0, 1):
            await ack(store, popped.messages[n], popped.lease_id)
    rows = await every(store.list_attempts, limit=2)
    assert [(row.queue, int(row.item_id.split("-")[1])) for row in rows] == [
        (queue, seq) for queue in ("w1", "w2") for seq in (3, 1, 2)
    ]
    assert len(await every(store.list_attempts, queue="w2", limit=2)) == 3
