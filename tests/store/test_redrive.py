"""Dead letters of messages and items that are redriven: once, and as if they were new."""

import asyncio

import pytest

from monarq.clock import ManualClock
from monarq.errors import MonarqError
from monarq.model import ItemState, SeekTo, StartFrom
from monarq.operations.groups import Seek
from monarq.store import Store
from tests.store.burying import bury
from tests.store.calls import ack, pop, pop_one, push, push_many, seqs
from tests.store.conftest import OpenStore
from tests.store.scenarios import (
    COMPLETED,
    DEAD,
    EVERY_DEAD_LETTER,
    FAILED,
    WORK,
    dead_letters,
    drain,
    every,
    group_row,
    headers_of,
    stats,
)

pytestmark = pytest.mark.smoke

# --- redrive ---


async def test_a_redriven_message_comes_at_the_end_for_the_group_that_failed_alone(
    store: Store,
) -> None:
    answer = await push(store, "q", b"1", transaction_id="t", headers=b'{"a":1}', trace_id="tr")
    await push(store, "q", b"2")
    await store.subscribe("other", StartFrom.ALL, queue="q")
    message, lease = await pop_one(store, "q", group="g")
    await ack(store, message, lease, DEAD, group="g")
    assert await store.redrive(all=True) == 1
    assert await dead_letters(store) == []
    assert (await stats(store, "q")).dead_letters == 0
    got = await drain(store, "q", group="g")
    assert [(m.seq, m.payload, m.attempts) for m in got] == [(2, b"2", 1), (3, b"1", 1)]
    redriven = got[1]
    assert redriven.partition_id == answer.partition_id
    assert redriven.trace_id == "tr"
    assert headers_of(redriven) == {"a": 1, "monarqRedrivenFrom": "t"}
    assert redriven.transaction_id != "t"
    assert [m.payload for m in await drain(store, "q", group="other")] == [b"1", b"2"]
    for group in ("g", "other"):
        assert (await group_row(store, "q", group)).lag == 0
    assert (await pop(store, "q", group="other")).messages == []


async def test_a_group_that_begins_after_a_redrive_does_not_get_the_redriven_copy(
    store: Store,
) -> None:
    await push(store, "q", b"1")
    message, lease = await pop_one(store, "q", group="g")
    await ack(store, message, lease, DEAD, group="g")
    await store.redrive(all=True)
    await push(store, "q", b"2")
    assert [m.payload for m in await drain(store, "q", group="late")] == [b"1", b"2"]
    assert [m.payload for m in await drain(store, "q", group="g")] == [b"1", b"2"]


async def test_a_seek_back_of_another_group_does_not_replay_the_redriven_copy(
    store: Store,
) -> None:
    await push(store, "q", b"1")
    for group, status in (("g", DEAD), ("other", COMPLETED)):
        message, lease = await pop_one(store, "q", group=group)
        await ack(store, message, lease, status, group=group)
    await store.redrive(all=True)
    await push(store, "q", b"2")
    for group, expected in (("g", [b"1", b"1", b"2"]), ("other", [b"1", b"2"])):
        await drain(store, "q", group=group)
        await store.call(Seek(group=group, queue="q", to=SeekTo.START))
        assert [m.payload for m in await drain(store, "q", group=group)] == expected


async def test_two_groups_that_failed_on_one_message_each_get_it_back_once(
    store: Store,
) -> None:
    await push(store, "q", b"1")
    for group in ("a", "b"):
        message, lease = await pop_one(store, "q", group=group)
        await ack(store, message, lease, DEAD, group=group)
    assert await store.redrive(queue="q") == 2
    for group in ("a", "b"):
        assert [m.payload for m in await drain(store, "q", group=group)] == [b"1"]


async def test_a_redriven_message_that_fails_again_is_a_dead_letter_again(store: Store) -> None:
    await store.configure("q", options={"retryLimit": 1, "retryDelay": 0})
    await push(store, "q", b"1")
    for _ in range(3):
        for attempt in (1, 2):
            message, lease = await pop_one(store, "q")
            assert message.attempts == attempt
            await ack(store, message, lease, FAILED, error="again")
        [letter] = await dead_letters(store)
        assert (letter.payload, letter.attempts, letter.error) == (b"1", 2, "again")
        assert await store.redrive(all=True) == 1
    assert (await stats(store, "q")).dead == 3


async def test_redrive_takes_the_oldest_first_up_to_its_limit(
    store: Store, clock: ManualClock
) -> None:
    for n in range(5):
        await bury(store, "q", b"%d" % n)
        clock.advance(1)
    assert await store.redrive(all=True, limit=2) == 2
    assert [int(row.payload) for row in await dead_letters(store)] == [4, 3, 2]
    assert [int(m.payload) for m in await drain(store, "q", group="g")] == [0, 1]
    assert await store.redrive(all=True, limit=100) == 3
    assert await store.redrive(all=True) == 0


async def test_redrive_takes_only_what_matches(store: Store) -> None:
    for n in range(4):
        await bury(store, f"q{n % 2}", b"%d" % n)
    assert await store.redrive(queue="q1") == 2
    assert sorted(int(row.payload) for row in await dead_letters(store)) == [0, 2]
    [one, _] = await dead_letters(store)
    assert await store.redrive(ids=[one.id]) == 1
    assert len(await dead_letters(store)) == 1


async def test_redrive_to_another_queue_is_a_push_there_for_every_group(store: Store) -> None:
    await push(store, "target", b"0")
    await bury(store, "q", b"1", partition="p")
    before = len(await every(store.list_messages, "q"))
    assert await store.redrive(queue="q", to_queue="target") == 1
    assert await dead_letters(store) == []
    for group in ("x", "y"):
        got = await drain(store, "target", group=group)
        assert sorted(m.payload for m in got) == [b"0", b"1"]
    assert len(await every(store.list_messages, "q")) == before


async def test_redrive_does_not_care_how_full_the_queue_is(store: Store) -> None:
    await bury(store, "q", b"1")
    await store.configure("q", options={"maxSize": 1})
    await push(store, "q", b"2")
    assert await store.redrive(all=True) == 1
    assert [m.payload for m in await drain(store, "q", group="g")] == [b"2", b"1"]


async def test_a_letter_can_be_redriven_after_its_message_was_removed(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    await bury(store, "q", b"1")
    clock.advance(101)
    await store.lifecycle()
    assert await store.redrive(all=True) == 1
    assert [m.payload for m in await drain(store, "q", group="g")] == [b"1"]


async def test_two_stores_that_redrive_at_once_put_each_letter_back_once(
    store: Store, open_another: OpenStore
) -> None:
    other = await open_another()
    for n in range(10):
        await bury(store, "q", b"%d" % n)
    counts = await asyncio.gather(
        *(through.redrive(all=True) for through in (store, other, store, other))
    )
    assert sum(counts) == 10
    assert sorted(int(m.payload) for m in await drain(store, "q", group="g")) == list(range(10))


# --- items ---


async def test_a_redriven_item_starts_over_with_its_attempts_forgotten(store: Store) -> None:
    await store.configure("w", kind=WORK, options={"maxAttempts": 2, "backoffBase": 0})
    [answer] = await push_many(store, "w", 1)
    for _ in range(2):
        message, lease = await pop_one(store, "w")
        await ack(store, message, lease, FAILED, error="no")
    [letter] = await dead_letters(store, queue="w")
    assert (letter.attempts, letter.error, letter.seq) == (2, "no", 1)
    assert await store.redrive(queue="w") == 1
    assert await dead_letters(store) == []
    item = await store.get_item(answer.message_id)
    assert (item.state, item.attempts) == (ItemState.READY, 0)
    message, lease = await pop_one(store, "w")
    assert (message.id, message.attempts) == (answer.message_id, 1)
    await ack(store, message, lease)
    assert (await stats(store, "w")).states["done"] == 1


async def test_an_item_redriven_to_another_work_queue_is_there_and_there_alone(
    store: Store,
) -> None:
    for queue in ("w", "target"):
        await store.configure(queue, kind=WORK)
    await push(store, "w", b"1", transaction_id="t")
    message, lease = await pop_one(store, "w")
    await ack(store, message, lease, DEAD)
    assert await store.redrive(queue="w", to_queue="target") == 1
    assert await dead_letters(store) == []
    assert [m.payload for m in await drain(store, "target")] == [b"1"]
    assert (await pop(store, "w")).messages == []


async def test_redrive_to_a_queue_of_the_other_kind_loses_nothing(store: Store) -> None:
    """Whether it is refused or done, the letter is in exactly one place after it."""
    await store.configure("w", kind=WORK)
    await bury(store, "q", b"1")
    try:
        moved = await store.redrive(queue="q", to_queue="w")
    except MonarqError:
        moved = 0
    assert len(await dead_letters(store)) == 1 - moved
    assert len(await every(store.list_items, "w")) == moved


async def test_a_limit_out_of_range_is_refused(store: Store) -> None:
    for limit in (0, -1):
        with pytest.raises(MonarqError):
            await store.list_dead_letters(EVERY_DEAD_LETTER, limit=limit)
        with pytest.raises(MonarqError):
            await store.redrive(all=True, limit=limit)


async def test_a_redriven_message_is_found_at_once_by_a_waiting_group(store: Store) -> None:
    await bury(store, "q", b"1")
    assert (await pop(store, "q", group="g")).messages == []
    await store.redrive(all=True)
    assert await seqs(store, "q", group="g") == [2]


async def test_redrive_to_its_own_queue_is_a_redrive_and_no_new_push(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await store.subscribe("other", StartFrom.ALL, queue="q")
    await bury(store, "q", b"1")
    item = await push(store, "w", b"2")
    message, lease = await pop_one(store, "w")
    await ack(store, message, lease, DEAD)
    for queue in ("q", "w"):
        assert await store.redrive(queue=queue, to_queue=queue) == 1
    assert [m.payload for m in await drain(store, "q", group="g")] == [b"1"]
    assert [m.seq for m in await drain(store, "q", group="other")] == [1]
    assert [m.id for m in await drain(store, "w")] == [item.message_id]
