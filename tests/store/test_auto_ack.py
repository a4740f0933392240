"""What is popped with auto-ack is done at once, without a lease."""

import pytest

from monarq.errors import LeaseExpiredError
from monarq.model import DEFAULT_GROUP
from monarq.store import Store
from tests.store.calls import ack, pop, push, push_many, seqs
from tests.store.scenarios import (
    WORK,
    cursor_row,
    drain,
    every,
    group_row,
    nothing_changes,
    numbers,
    seqs_of,
)


async def test_what_is_popped_with_auto_ack_is_done_without_a_lease(store: Store) -> None:
    await push_many(store, "q", 5)
    popped = await pop(store, "q", 3, auto_ack=True)
    assert (seqs_of(popped), popped.lease_id, popped.lease_until) == ([1, 2, 3], None, None)
    row = await group_row(store, "q", DEFAULT_GROUP)
    assert (row.completed, row.lag) == (3, 2)
    assert (await cursor_row(store, "q", DEFAULT_GROUP)).lease_until is None
    popped = await pop(store, "q", 3, auto_ack=True)
    assert seqs_of(popped) == [4, 5]
    assert (await pop(store, "q", 3, auto_ack=True)).messages == []


async def test_what_was_popped_with_auto_ack_cannot_be_acked_again(store: Store) -> None:
    await push(store, "q")
    [message] = (await pop(store, "q", auto_ack=True)).messages
    async with nothing_changes(store):
        with pytest.raises(LeaseExpiredError):
            await ack(store, message, None)


async def test_auto_ack_of_one_group_leaves_the_others_their_messages(store: Store) -> None:
    await push_many(store, "q", 2)
    await pop(store, "q", 2, auto_ack=True, group="g1")
    assert await seqs(store, "q", group="g2") == [1, 2]


async def test_auto_ack_over_several_partitions_completes_them_all(store: Store) -> None:
    for partition in "abc":
        await push_many(store, "q", 2, partition=partition)
    popped = await pop(store, "q", 100, partitions=3, auto_ack=True)
    assert len(popped.messages) == 6
    assert (await group_row(store, "q", DEFAULT_GROUP)).lag == 0
    assert await drain(store, "q") == []


async def test_work_items_popped_with_auto_ack_are_done(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await push_many(store, "w", 3)
    popped = await pop(store, "w", 2, auto_ack=True)
    assert (numbers(popped), popped.lease_id) == ([1, 2], None)
    states = [row.state for row in await every(store.list_items, "w")]
    assert states == ["done", "done", "ready"]
