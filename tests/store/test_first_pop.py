"""A group that is new in a queue with very many partitions: its cursors are made in steps.

Consumers get the same messages as if all cursors had been made at once, and the lag is the same.
"""

import asyncio

import pytest

from monarq.clock import ManualClock
from monarq.errors import ConflictError
from monarq.model import Message, PushItem, SeekTo, StartFrom
from monarq.operations.groups import DeleteGroup, Seek
from monarq.store import Store
from tests.store.calls import pop, push, push_items
from tests.store.conftest import OpenStore
from tests.store.scenarios import every, group_row

STEP = 4_000
PARTITIONS = 2 * STEP + 500
LAST = f"p{PARTITIONS - 1:05}"
GROUP = "late"

pytestmark = pytest.mark.slow


def names(first: int = 0, behind: int = PARTITIONS) -> list[str]:
    return [f"p{number:05}" for number in range(first, behind)]


async def push_to_all(store: Store) -> None:
    await push_items(store, *(PushItem("q", b"1", partition=name) for name in names()))


async def cursors(store: Store) -> int:
    return len(await every(store.list_cursors, "q", GROUP))


async def lag(store: Store) -> int:
    return (await group_row(store, "q", GROUP)).lag


async def make_all(store: Store) -> None:
    while (await store.lifecycle()).made:
        pass
    assert await cursors(store) == PARTITIONS


async def take_all(store: Store, group: str = GROUP) -> list[Message]:
    """What the group can have, by pops alone."""
    taken: list[Message] = []
    for _ in range(100):
        popped = await pop(store, "q", 1000, group=group, partitions=1000, auto_ack=True)
        taken += popped.messages
        if not popped.messages and popped.next_at is None:
            return taken
    raise AssertionError("the messages never end")


def partitions_of(messages: list[Message]) -> list[str]:
    return [message.partition for message in messages]


async def test_the_first_pop_makes_some_cursors_and_the_lifecycle_the_others(store: Store) -> None:
    await push_to_all(store)
    popped = await pop(store, "q", 10, group=GROUP, partitions=10, auto_ack=True)
    assert partitions_of(list(popped.messages)) == names(0, 10)
    assert (await cursors(store), await lag(store)) == (STEP, PARTITIONS - 10)
    report = await store.lifecycle()
    assert (report.made, report.wake) == (STEP, ["q"])
    assert await cursors(store) == 2 * STEP
    await make_all(store)
    assert await lag(store) == PARTITIONS - 10
    assert partitions_of(await take_all(store)) == names(10)


async def test_pops_alone_deliver_all_messages_in_order(store: Store) -> None:
    await push_to_all(store)
    assert partitions_of(await take_all(store)) == names()
    assert (await cursors(store), await lag(store)) == (PARTITIONS, 0)


async def test_a_pop_passes_over_partitions_without_messages(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 10})
    await push_to_all(store)
    clock.advance(11)
    while (await store.lifecycle()).removed:
        pass
    await push(store, "q", partition=LAST)
    popped = await pop(store, "q", group=GROUP)
    assert partitions_of(list(popped.messages)) == [LAST]


async def test_a_group_that_begins_at_the_end_has_all_cursors_at_once(store: Store) -> None:
    await push_to_all(store)
    assert (await pop(store, "q", group=GROUP, start=StartFrom.NEW)).messages == []
    assert (await cursors(store), await lag(store)) == (PARTITIONS, 0)
    await push(store, "q", partition=LAST)
    assert [m.seq for m in await take_all(store)] == [2]


async def test_a_group_that_begins_at_a_time_is_behind_what_is_older(
    store: Store, clock: ManualClock
) -> None:
    await push_to_all(store)
    clock.advance(10)
    since = clock.now()
    newer = names(STEP - 5, STEP + 5) + names(PARTITIONS - 5)
    await push_items(store, *(PushItem("q", b"2", partition=name) for name in newer))
    await pop(store, "q", group=GROUP, start=since, partition="p00000")
    await make_all(store)
    assert await lag(store) == len(newer)
    assert partitions_of(await take_all(store)) == newer


async def test_what_is_pushed_meanwhile_comes_after_what_was_there(
    store: Store, clock: ManualClock
) -> None:
    await push_to_all(store)
    await pop(store, "q", group=GROUP, auto_ack=True)
    clock.advance(1)
    await push(store, "q", partition="p00000")
    await push(store, "q", partition="new")
    await push(store, "q", partition=LAST)
    taken = await take_all(store)
    assert partitions_of(taken) == [*names(1), LAST, "p00000", "new"]
    assert await lag(store) == 0


async def test_a_pop_by_name_does_not_wait_for_the_cursor(store: Store) -> None:
    await push_to_all(store)
    await pop(store, "q", group=GROUP, partition="p00000", auto_ack=True)
    popped = await pop(store, "q", group=GROUP, partition=LAST, auto_ack=True)
    assert partitions_of(list(popped.messages)) == [LAST]
    assert partitions_of(await take_all(store)) == names(1, PARTITIONS - 1)


async def test_retention_waits_for_a_group_without_a_cursor(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"completedRetentionSeconds": 10})
    await push_to_all(store)
    assert len(await take_all(store, "other")) == PARTITIONS
    await pop(store, "q", group=GROUP, partition="p00000", auto_ack=True)
    clock.advance(3600)
    removed = 0
    while done := (await store.lifecycle(limit=PARTITIONS)).removed:
        removed += done
    assert removed == 1
    assert partitions_of(await take_all(store)) == names(1)


@pytest.mark.parametrize("how", ["seek", "seek one", "clear", "skip", "delete group"])
async def test_a_group_can_be_moved_before_all_its_cursors_are_made(store: Store, how: str) -> None:
    await push_to_all(store)
    await pop(store, "q", group=GROUP, partition="p00000", auto_ack=True)
    left = names()
    match how:
        case "seek":
            before = await store.call(Seek(group=GROUP, queue="q", to=SeekTo.END))
            assert before == 0
            left = []
        case "seek one":
            before = await store.call(Seek(group=GROUP, queue="q", partition=LAST, to=SeekTo.END))
            assert before == 0
            left = names(1, PARTITIONS - 1)
        case "clear":
            assert await store.clear_queue("q") == PARTITIONS
            left = []
        case "skip":
            with pytest.raises(ConflictError):
                await store.skip("q", GROUP, LAST, 2, "not wanted")
            assert await store.skip("q", GROUP, LAST, 1, "not wanted") == 0
            left = names(1, PARTITIONS - 1)
        case _:
            await store.call(DeleteGroup(group=GROUP))
    assert partitions_of(await take_all(store)) == left
    await make_all(store)
    assert await lag(store) == 0


async def test_another_process_goes_on_where_one_was_killed(
    store: Store, open_another: OpenStore
) -> None:
    await push_to_all(store)
    await pop(store, "q", group=GROUP, auto_ack=True)
    await store.lifecycle()
    other = await open_another()
    await make_all(other)
    assert await lag(other) == PARTITIONS - 1
    assert partitions_of(await take_all(other)) == names(1)


async def test_several_processes_make_each_cursor_once(
    store: Store, open_another: OpenStore
) -> None:
    await push_to_all(store)
    stores = [store, await open_another(), await open_another()]

    async def take(one: Store) -> list[Message]:
        await one.lifecycle()
        return await take_all(one)

    async def push_more() -> None:
        for name in names()[:: PARTITIONS // 20]:
            await push(store, "q", partition=name)

    *taken, _ = await asyncio.gather(*map(take, stores), push_more())
    taken.append(await take_all(store))
    seqs = [(message.partition, message.seq) for messages in taken for message in messages]
    assert len(seqs) == len(set(seqs)) == PARTITIONS + len(names()[:: PARTITIONS // 20])
    assert (await cursors(store), await lag(store)) == (PARTITIONS, 0)
