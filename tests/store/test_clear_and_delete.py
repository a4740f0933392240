"""Queues that are cleared or deleted: all that belongs to them goes, and nothing else."""

import pytest

from monarq.clock import ManualClock
from monarq.errors import ConflictError, NotFoundError
from monarq.model import Message, QueueOptions, StartFrom
from monarq.store import Store
from tests.store.calls import ack, pop, pop_one, push, push_many, seqs
from tests.store.scenarios import (
    DEAD,
    WORK,
    dead_letters,
    drain,
    every,
    group_row,
    nothing_changes,
    stats,
)

# --- clear ---


@pytest.mark.parametrize("consumed", [0, 2, 5])
async def test_clear_removes_what_is_stored_and_leaves_groups_at_the_end(
    store: Store, consumed: int
) -> None:
    await push_many(store, "q", 3, partition="a")
    await push_many(store, "q", 2, partition="b")
    for _ in range(consumed):
        message, lease = await pop_one(store, "q", group="g")
        await ack(store, message, lease, group="g")
    await store.subscribe("g", StartFrom.ALL, queue="q")
    assert await store.clear_queue("q") == 5
    assert await every(store.list_messages, "q") == []
    assert (await stats(store, "q")).stored == 0
    assert (await stats(store, "q")).pending == 0
    assert (await group_row(store, "q", "g")).lag == 0
    assert (await pop(store, "q", group="g")).messages == []
    answer = await push(store, "q", partition="a")
    assert answer.seq == 4
    assert [(m.partition, m.seq) for m in await drain(store, "q", group="g")] == [("a", 4)]
    assert await store.clear_queue("q") == 1
    assert await store.clear_queue("q") == 0


async def test_clear_leaves_the_options_dead_letters_and_other_queues(store: Store) -> None:
    await store.configure("q", options={"leaseTime": 77})
    await push_many(store, "q", 2)
    await push(store, "other")
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, DEAD)
    await store.clear_queue("q")
    assert (await store.get_queue("q")).options.lease_time == 77
    assert len(await dead_letters(store)) == 1
    assert (await stats(store, "other")).stored == 1


async def test_clear_empties_a_work_queue_whatever_state_its_items_have(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await push(store, "w", delay_seconds=60)
    await push_many(store, "w", 4)
    first, lease = await pop_one(store, "w")
    await ack(store, first, lease)
    leased, lease = await pop_one(store, "w")
    assert await store.clear_queue("w") == 5
    assert await every(store.list_items, "w") == []
    assert (await stats(store, "w")).pending == 0
    with pytest.raises(NotFoundError):
        await ack(store, leased, lease)
    assert (await push(store, "w", b"1")).seq == 6


async def _one_of_each_state(store: Store) -> tuple[Message, str]:
    """A work queue with an item in every state; the leased one, and its lease."""
    await store.configure("w", kind=WORK)
    for name in ("done", "dead", "cancelled", "leased", "ready"):
        await push(store, "w", transaction_id=name)
    await push(store, "w", transaction_id="scheduled", delay_seconds=60)
    done, lease = await pop_one(store, "w")
    await ack(store, done, lease)
    dead, lease = await pop_one(store, "w")
    await ack(store, dead, lease, DEAD)
    await store.cancel_item((await store.list_items("w", transaction_id="cancelled")).rows[0].id)
    return await pop_one(store, "w")


async def _kept(store: Store) -> set[str]:
    """The transaction ids of the items that are left; the counters say the same."""
    items = await every(store.list_items, "w")
    told = (await stats(store, "w")).states
    assert sum(told.values()) == len(items) == (await stats(store, "w")).stored
    for state, count in told.items():
        assert sum(item.state == state for item in items) == count
    return {item.transaction_id for item in items}


async def test_clear_removes_only_scheduled_items_if_told_to(store: Store) -> None:
    leased, lease = await _one_of_each_state(store)
    assert await store.clear_queue("w", scheduled_only=True) == 1
    assert await _kept(store) == {"done", "dead", "cancelled", "leased", "ready"}
    assert await store.clear_queue("w", scheduled_only=True, keep_leased=True) == 0
    again = await push(store, "w", transaction_id="scheduled", delay_seconds=60)
    assert (again.status, again.seq) == ("queued", 7)
    await ack(store, leased, lease)
    assert (await pop_one(store, "w"))[0].transaction_id == "ready"


async def test_clear_keeps_leased_items_if_told_to(store: Store) -> None:
    leased, lease = await _one_of_each_state(store)
    assert await store.clear_queue("w", keep_leased=True) == 4
    assert await _kept(store) == {"dead", "leased"}
    assert (await stats(store, "w")).pending == 1
    assert (await push(store, "w", transaction_id="ready")).status == "queued"
    assert (await push(store, "w", transaction_id="leased")).status == "duplicate"
    await ack(store, leased, lease)
    assert (await store.list_items("w", transaction_id="leased")).rows[0].state == "done"


async def test_clear_does_not_keep_an_item_whose_lease_is_past_its_deadline(
    store: Store, clock: ManualClock
) -> None:
    leased, lease = await _one_of_each_state(store)
    clock.advance(300)
    assert await store.clear_queue("w", keep_leased=True) == 5
    assert await _kept(store) == {"dead"}
    with pytest.raises(NotFoundError):
        await ack(store, leased, lease)


async def test_an_ordered_queue_is_cleared_as_a_whole_or_not_at_all(store: Store) -> None:
    await push_many(store, "q", 2)
    await pop_one(store, "q")
    async with nothing_changes(store):
        for which in ({"scheduled_only": True}, {"keep_leased": True}):
            with pytest.raises(ConflictError, match="cleared as a whole"):
                await store.clear_queue("q", **which)


# --- delete ---


async def test_delete_removes_the_queue_with_all_that_belongs_to_it(store: Store) -> None:
    await store.configure("w", kind=WORK)
    for queue in ("q", "w"):
        await push_many(store, queue, 3)
        message, lease = await pop_one(store, queue)
        await ack(store, message, lease, DEAD)
        await pop_one(store, queue)
    await push(store, "other")
    old = (await store.list_messages("q")).rows[0]
    item = (await store.list_items("w")).rows[0]
    for queue in ("q", "w"):
        assert (await store.delete_queue(queue)).deleted
        assert not (await store.delete_queue(queue)).deleted
    assert [row.name for row in await every(store.list_queues)] == ["other"]
    assert await dead_letters(store) == []
    assert await every(store.list_groups) == []
    with pytest.raises(NotFoundError):
        await store.get_message(old.partition_id, old.transaction_id)
    with pytest.raises(NotFoundError):
        await store.get_item(item.id)


async def test_a_queue_made_again_after_its_deletion_remembers_nothing(store: Store) -> None:
    await store.configure("q", namespace="ns", options={"leaseTime": 77})
    old = await push(store, "q", transaction_id="a")
    await drain(store, "q", group="g")
    await store.delete_queue("q")
    new = await push(store, "q", transaction_id="a")
    assert new.partition_id != old.partition_id
    assert (new.status, new.seq) == ("queued", 1)
    queue = await store.get_queue("q")
    assert (queue.namespace, queue.options) == ("", QueueOptions())
    assert await seqs(store, "q", group="g") == [1]


async def test_a_queue_can_be_made_again_as_the_other_kind(store: Store) -> None:
    await push(store, "q")
    await store.delete_queue("q")
    await store.configure("q", kind=WORK)
    await push(store, "q", priority=3)
    assert (await pop(store, "q")).messages[0].priority == 3
