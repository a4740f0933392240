"""`maxSize`: what counts, who is refused, and what makes room."""

import asyncio

import pytest

from monarq.clock import ManualClock
from monarq.errors import QueueFullError, TransactionFailedError
from monarq.model import Ack, Push, PushItem, PushStatus, StartFrom
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
    transaction,
)
from tests.store.conftest import OpenStore
from tests.store.scenarios import (
    DEAD,
    WORK,
    drain,
    let_time_work,
    nothing_changes,
    stats,
    stored_payloads,
)


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
