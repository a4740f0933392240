"""What a PostgreSQL store keeps of its pushes is never delivered but where the tables have it."""

from collections.abc import Sequence

import asyncpg
import pytest

from monarq.clock import ManualClock
from monarq.errors import EncryptionKeyError, MonarqError
from monarq.model import (
    Ack,
    AckStatus,
    Message,
    Pop,
    Push,
    PushItem,
    StartFrom,
    Transaction,
)
from monarq.store import Store
from monarq.store.postgres.pushed_segments import (
    MOST_BYTES,
    MOST_SEGMENTS,
    WORTH_KEEPING,
    PushedSegments,
    segment_name,
)
from monarq.store.postgres.store import PostgresStore
from tests.shared_postgres import POSTGRES_NAMES
from tests.store.calls import ack_all, pop, push_items, unwrap
from tests.store.conftest import OpenStore, Place
from tests.store.scenarios import let_time_work

on_postgres = pytest.mark.parametrize("place", POSTGRES_NAMES, indirect=True)


def payload(letter: str) -> bytes:
    return f'"{letter * WORTH_KEEPING}"'.encode()


def items(letters: str, queue: str = "q", partition: str = "p") -> list[PushItem]:
    return [PushItem(queue, payload(letter), partition) for letter in letters]


def letters(messages: Sequence[Message]) -> str:
    return "".join(message.payload[1:2].decode() for message in messages)


def kept(store: Store) -> PushedSegments:
    assert isinstance(store, PostgresStore)
    return store._catalog.pushed


async def kept_names(store: Store, queue: str = "q") -> list[str]:
    return list(kept(store).of_queue((await store.get_queue(queue)).id))


@on_postgres
async def test_what_was_just_pushed_is_not_sent_back(store: Store) -> None:
    await push_items(store, PushItem("q", b"0", "p"))
    await push_items(store, *items("ab"))
    await ack_all(store, await pop(store, "q"))
    [name] = await kept_names(store)
    queue = await store.get_queue("q")
    # Its like, of the same length: that this comes shows where it comes from.
    kept(store).learn(queue.id, name, payload("x") + payload("y"))
    popped = await pop(store, "q", 10)
    assert letters(popped.messages) == "xy"
    assert await kept_names(store) == []


@on_postgres
async def test_it_comes_with_all_that_it_was_pushed_with(store: Store) -> None:
    await push_items(store, PushItem("q", b"0", "p"))
    pushed = [
        PushItem("q", payload(letter), "p", f"id-{letter}", headers=b'{"h":1}', trace_id="t")
        for letter in "abc"
    ]
    await push_items(store, *pushed)
    await ack_all(store, await pop(store, "q"))
    assert await kept_names(store)
    fresh = await pop(store, "q", 10)
    await ack_all(store, fresh)
    sent = await pop(store, "q", 10, group="later", start=StartFrom.ALL)
    assert list(fresh.messages) == list(sent.messages)[1:]


@on_postgres
@pytest.mark.parametrize("by_another", [False, True])
async def test_a_message_that_was_deleted_is_not_delivered(
    store: Store, open_another: OpenStore, by_another: bool
) -> None:
    await push_items(store, PushItem("q", b"0", "p"))
    pushed = await push_items(store, *items("abc"))
    await ack_all(store, await pop(store, "q"))
    assert await kept_names(store)
    who = await open_another() if by_another else store
    await who.delete_message(pushed[1].partition_id, pushed[1].transaction_id)
    popped = await pop(store, "q", 10)
    assert letters(popped.messages) == "ac"


@on_postgres
@pytest.mark.parametrize("by_another", [False, True])
async def test_what_retention_deleted_is_not_delivered(
    store: Store, open_another: OpenStore, clock: ManualClock, by_another: bool
) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    await push_items(store, PushItem("q", b"0", "p"))
    await ack_all(store, await pop(store, "q"))
    await push_items(store, *items("ab"))
    clock.advance(60)
    await push_items(store, *items("cd"))
    gone, there = await kept_names(store)
    another = await open_another()
    clock.advance(41)
    await let_time_work(another if by_another else store)
    assert await kept_names(store) == [gone, there]
    popped = await pop(store, "q", 10)
    assert letters(popped.messages) == "cd"
    await ack_all(store, popped)
    # And once more, now with nothing left, until another pushes.
    await push_items(store, *items("ef"))
    clock.advance(101)
    await let_time_work(another if by_another else store)
    assert (await pop(store, "q", 10)).messages == []
    await push_items(another, *items("gh"))
    assert letters((await pop(store, "q", 10)).messages) == "gh"


@on_postgres
async def test_a_queue_that_another_cleared_or_made_anew_has_only_what_came_then(
    store: Store, open_another: OpenStore
) -> None:
    another = await open_another()
    for clear in (another.clear_queue, another.delete_queue):
        await push_items(store, PushItem("q", b"0", "p"))
        await push_items(store, *items("ab"))
        assert await kept_names(store)
        await clear("q")
        await push_items(another, PushItem("q", b"0", "p"))
        await push_items(another, *items("cd"))
        popped = await pop(store, "q", 10, start=StartFrom.ALL)
        assert letters(popped.messages)[-2:] == "cd"
        assert len(popped.messages) == 3
        await ack_all(store, popped)


@on_postgres
async def test_what_was_taken_back_is_not_delivered_in_place_of_what_came_then(
    store: Store, open_another: OpenStore
) -> None:
    await push_items(store, PushItem("q", b"0", "p"))
    undone = Transaction([Push(items("xy")), Ack(lease_id="1-0123456789abcdef")])
    with pytest.raises(MonarqError):
        unwrap(await store.transaction([undone]))
    # The same seqs at the same time, as the clock stands still.
    await push_items(await open_another(), *items("ab"))
    await ack_all(store, await pop(store, "q"))
    assert letters((await pop(store, "q", 10)).messages) == "ab"


@on_postgres
async def test_a_database_that_was_set_back_is_read(store: Store, place: Place) -> None:
    await push_items(store, PushItem("q", b"0", "p"))
    await push_items(store, *items("ab"))
    await ack_all(store, await pop(store, "q"))
    [name] = await kept_names(store)
    connection = await asyncpg.connect(place.address)
    try:
        # As after a restore: another segment has come to stand where the known one was.
        await connection.execute(
            f'update "{place.schema}".segments set data = $1, created_at = created_at + 1 '
            "where count = 2",
            payload("c") + payload("d"),
        )
    finally:
        await connection.close()
    assert letters((await pop(store, "q", 10)).messages) == "cd"
    assert await kept_names(store) == [name]


@on_postgres
async def test_a_redriven_message_comes_to_its_own_group_alone(store: Store) -> None:
    await store.configure("q", options={"retryLimit": 0})
    await push_items(store, PushItem("q", b"0", "p"))
    await ack_all(store, await pop(store, "q"))
    await push_items(store, *items("ab"))
    await ack_all(store, await pop(store, "q", 10), AckStatus.FAILED, error="no")
    await push_items(store, *items("cd"))
    assert await store.redrive(queue="q") == 2
    popped = await pop(store, "q", 100)
    assert sorted(letters(popped.messages)) == ["a", "b", "c", "d"]


@on_postgres
async def test_payloads_are_kept_as_they_are_stored(store: Store, open_another: OpenStore) -> None:
    await store.configure("q", options={"encryptionEnabled": True})
    await push_items(store, PushItem("q", b"0", "p"))
    await ack_all(store, await pop(store, "q"))
    await push_items(store, *items("ab"))
    queue = await store.get_queue("q")
    [data] = kept(store).of_queue(queue.id).values()
    assert b"aaaa" not in data
    [name] = kept(store).of_queue(queue.id)
    stranger = await open_another(keys=[b"k" * 32])
    kept(stranger).learn(queue.id, name, data)
    [refused] = await stranger.pop([Pop(queue="q", batch=10)])
    assert isinstance(refused, EncryptionKeyError)
    # Others may turn it off; what is there stays sealed.
    await store.configure("q", options={"encryptionEnabled": False})
    assert letters((await pop(store, "q", 10)).messages) == "ab"


@on_postgres
async def test_part_of_a_segment_and_several_requests_at_once_get_what_is_theirs(
    store: Store,
) -> None:
    await push_items(store, *items("ab"), *items("cd", partition="other"))
    await push_items(store, *items("ef"), *items("gh", partition="other"))
    first = await pop(store, "q", 1)
    await ack_all(store, first)
    popped = [unwrap([one]) for one in await store.pop([Pop(queue="q", batch=100)] * 3)]
    got = {"p": "", "other": ""}
    for message in [message for answer in (first, *popped) for message in answer.messages]:
        got[message.partition] += letters([message])
    assert got == {"p": "abef", "other": "cdgh"}
    assert not popped[2].messages


def test_what_is_kept_is_bounded() -> None:
    pushed = PushedSegments()
    pushed.learn(1, "small", bytes(WORTH_KEEPING - 1))
    assert pushed.of_queue(1) == {}
    for n in range(2 * MOST_SEGMENTS):
        pushed.learn(1, segment_name(1, n, 0), bytes(WORTH_KEEPING))
    assert list(pushed.of_queue(1)) == [
        segment_name(1, n, 0) for n in range(MOST_SEGMENTS, 2 * MOST_SEGMENTS)
    ]
    assert pushed.of_queue(2) == {}
    for n in range(3):
        pushed.learn(2, f"large {n}", bytes(MOST_BYTES // 2))
    assert pushed.of_queue(1) == {}
    assert list(pushed.of_queue(2)) == ["large 1", "large 2"]
    for name in ("large 1", "large 2", "unknown"):
        pushed.forget(name)
    for _ in range(2):
        pushed.learn(1, "twice", bytes(MOST_BYTES))
        assert list(pushed.of_queue(1)) == ["twice"]
    pushed.forget("twice")
    pushed.learn(1, "all", bytes(MOST_BYTES))
    assert list(pushed.of_queue(1)) == ["all"]


def test_what_was_named_in_a_call_is_there_when_its_answer_comes() -> None:
    pushed = PushedSegments()
    pushed.learn(1, "a", bytes(WORTH_KEEPING))
    known = pushed.of_queue(1)
    pushed.learn(1, "b", bytes(MOST_BYTES))
    assert "a" not in pushed.of_queue(1)
    assert known["a"] == bytes(WORTH_KEEPING)
