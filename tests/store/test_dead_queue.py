"""Dead queues: who may be one, and a move that neither loses nor doubles anything."""

import asyncio

import pytest

from monarq.clock import ManualClock
from monarq.errors import ConflictError, InvalidRequestError, NotFoundError
from monarq.model import AckStatus, ItemState, PushStatus, QueueKind
from monarq.store import Store
from tests.store.calls import ack, pop, pop_one, push, push_many
from tests.store.conftest import OpenStore
from tests.store.scenarios import (
    DEAD,
    FAILED,
    ORDERED,
    WORK,
    dead_letters,
    drain,
    every,
    headers_of,
    let_time_work,
    nothing_changes,
    stats,
)

pytestmark = pytest.mark.smoke

KINDS = [ORDERED, WORK]


async def with_grave(store: Store, kind: QueueKind, **options: object) -> None:
    await store.configure("grave", kind=kind)
    await store.configure("q", kind=kind, options={"deadQueue": "grave", **options})


async def kill(store: Store, status: AckStatus = DEAD, group: str = "g") -> None:
    fields = {} if (await store.get_queue("q")).kind is WORK else {"group": group}
    message, lease = await pop_one(store, "q", **fields)
    await ack(store, message, lease, status, error="why", **fields)


# --- rules ---


@pytest.mark.parametrize("kind", KINDS)
async def test_a_dead_queue_must_exist(store: Store, kind: QueueKind) -> None:
    await store.configure("q", kind=kind)
    async with nothing_changes(store):
        with pytest.raises(InvalidRequestError):
            await store.configure("q", options={"deadQueue": "missing"})
        with pytest.raises(InvalidRequestError):
            await store.configure("new", kind=kind, options={"deadQueue": "missing"})


@pytest.mark.parametrize("kind", KINDS)
async def test_a_dead_queue_must_not_be_the_queue_itself(store: Store, kind: QueueKind) -> None:
    await store.configure("q", kind=kind)
    async with nothing_changes(store):
        with pytest.raises(InvalidRequestError):
            await store.configure("q", options={"deadQueue": "q"})
        with pytest.raises(InvalidRequestError):
            await store.configure("new", kind=kind, options={"deadQueue": "new"})


@pytest.mark.parametrize("kind", KINDS)
async def test_a_dead_queue_must_not_have_one_of_its_own(store: Store, kind: QueueKind) -> None:
    await with_grave(store, kind)
    await store.configure("first", kind=kind)
    async with nothing_changes(store):
        with pytest.raises(InvalidRequestError):
            await store.configure("first", options={"deadQueue": "q"})


@pytest.mark.parametrize("kind", KINDS)
async def test_a_dead_queue_must_not_be_given_one_later(store: Store, kind: QueueKind) -> None:
    await with_grave(store, kind)
    await store.configure("deeper", kind=kind)
    async with nothing_changes(store):
        with pytest.raises(InvalidRequestError):
            await store.configure("grave", options={"deadQueue": "deeper", "leaseTime": 5})
        with pytest.raises(InvalidRequestError):
            await store.configure("grave", options={"deadQueue": "q"})
    await store.configure("q", options={"deadQueue": ""})
    await store.configure("grave", options={"deadQueue": "deeper"})


@pytest.mark.parametrize(("kind", "other"), [(ORDERED, WORK), (WORK, ORDERED)])
async def test_a_dead_queue_must_be_of_the_same_kind(
    store: Store, kind: QueueKind, other: QueueKind
) -> None:
    await store.configure("q", kind=kind)
    await store.configure("grave", kind=other)
    async with nothing_changes(store):
        with pytest.raises(InvalidRequestError):
            await store.configure("q", options={"deadQueue": "grave"})


@pytest.mark.parametrize("kind", KINDS)
async def test_a_dead_queue_cannot_be_deleted_while_it_is_one(
    store: Store, kind: QueueKind
) -> None:
    await with_grave(store, kind)
    async with nothing_changes(store):
        with pytest.raises(ConflictError):
            await store.delete_queue("grave")
    assert (await store.delete_queue("q")).deleted
    assert (await store.delete_queue("grave")).deleted


async def test_a_dead_queue_let_go_of_can_be_deleted(store: Store) -> None:
    await with_grave(store, ORDERED)
    await store.configure("q", options={"deadQueue": ""})
    assert (await store.delete_queue("grave")).deleted


async def test_several_queues_may_share_a_dead_queue(store: Store) -> None:
    await with_grave(store, ORDERED)
    await store.configure("q2", options={"deadQueue": "grave"})
    await store.configure("q", options={"deadQueue": ""})
    with pytest.raises(ConflictError):
        await store.delete_queue("grave")
    with pytest.raises(InvalidRequestError):
        await store.configure("grave", options={"deadQueue": "q"})


async def test_two_stores_cannot_make_a_chain_between_them(
    store: Store, open_another: OpenStore
) -> None:
    other = await open_another()
    for n in range(6):
        for name in (f"a{n}", f"b{n}"):
            await store.configure(name)
        outcomes = await asyncio.gather(
            store.configure(f"a{n}", options={"deadQueue": f"b{n}"}),
            other.configure(f"b{n}", options={"deadQueue": f"a{n}"}),
            return_exceptions=True,
        )
        refused = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert len(refused) == 1
        assert isinstance(refused[0], InvalidRequestError)


# --- the move of messages ---


async def test_a_dead_message_is_moved_to_the_same_partition_with_its_id_and_its_story(
    store: Store,
) -> None:
    await with_grave(store, ORDERED, retryLimit=1, retryDelay=0)
    await push(
        store,
        "q",
        b'{"a":1}',
        partition="p",
        transaction_id="t",
        trace_id="tr",
        headers=b'{"mine":[1]}',
    )
    await kill(store, FAILED)
    await kill(store, FAILED)
    [moved] = await every(store.list_messages, "grave")
    assert (moved.partition, moved.transaction_id, moved.payload) == ("p", "t", b'{"a":1}')
    assert moved.trace_id == "tr"
    headers = headers_of(moved)
    assert headers.pop("mine") == [1]
    assert int(headers.pop("monarqDeadAttempts")) == 2
    assert headers == {
        "monarqDeadFrom": "q",
        "monarqDeadGroup": "g",
        "monarqDeadError": "why",
    }
    assert await dead_letters(store) == []
    row = await stats(store, "q")
    assert (row.dead, row.dead_letters) == (1, 0)
    assert [m.payload for m in await drain(store, "grave")] == [b'{"a":1}']


@pytest.mark.parametrize("how", ["failed", "dead", "expired", "waited too long"])
async def test_whatever_kills_a_message_moves_it_once(
    store: Store, clock: ManualClock, how: str
) -> None:
    await with_grave(store, ORDERED, retryLimit=0, leaseTime=10)
    await push(store, "q", b"1")
    if how == "waited too long":
        await store.configure("q", options={"maxWaitTimeSeconds": 10})
        await store.subscribe("g", start=0, queue="q")
    elif how == "expired":
        await pop_one(store, "q", group="g")
    else:
        await kill(store, AckStatus(how))
    clock.advance(10)
    await let_time_work(store)
    await pop(store, "q", group="g")
    await let_time_work(store)
    assert [row.payload for row in await every(store.list_messages, "grave")] == [b"1"]
    assert await dead_letters(store) == []


async def test_what_two_groups_failed_on_is_stored_once_in_the_dead_queue(store: Store) -> None:
    await with_grave(store, ORDERED)
    for transaction_id in ("t", None):
        await push(store, "q", transaction_id=transaction_id)
    for group in ("g1", "g2"):
        await kill(store, group=group)
        await kill(store, group=group)
    assert len(await every(store.list_messages, "grave")) == 2
    assert (await stats(store, "q")).dead == 4


async def test_what_is_in_the_dead_queue_already_is_not_stored_twice(store: Store) -> None:
    await with_grave(store, ORDERED)
    await push(store, "grave", b"there first", transaction_id="t")
    await push(store, "q", b"later", transaction_id="t")
    await kill(store)
    rows = await every(store.list_messages, "grave")
    assert [row.payload for row in rows] == [b"there first"]
    assert (await pop(store, "q", group="g")).messages == []


async def test_the_id_of_a_moved_message_is_taken_in_the_dead_queue(store: Store) -> None:
    await with_grave(store, ORDERED)
    answer = await push(store, "q")
    await kill(store)
    again = await push(store, "grave", transaction_id=answer.transaction_id)
    assert again.status is PushStatus.DUPLICATE


@pytest.mark.parametrize("kind", KINDS)
async def test_a_full_or_paused_dead_queue_takes_the_dead_all_the_same(
    store: Store, kind: QueueKind
) -> None:
    await with_grave(store, kind)
    await store.configure("grave", options={"maxSize": 1})
    await push(store, "grave")
    await store.pause_queue("grave")
    await push_many(store, "q", 2)
    await kill(store)
    await kill(store)
    assert (await stats(store, "grave")).stored == 3


async def test_dead_messages_go_to_the_groups_of_the_dead_queue_in_the_order_they_died(
    store: Store,
) -> None:
    await with_grave(store, ORDERED)
    await push_many(store, "q", 3)
    assert (await pop(store, "grave", group="undertaker")).messages == []
    popped = await pop(store, "q", 3, group="g")
    for n in (2, 0, 1):
        await ack(store, popped.messages[n], popped.lease_id, DEAD, group="g")
    buried = await drain(store, "grave", group="undertaker")
    assert [int(m.payload) for m in buried] == [3, 1, 2]


async def test_a_message_that_dies_in_the_dead_queue_becomes_a_dead_letter(store: Store) -> None:
    await with_grave(store, ORDERED)
    await push(store, "q", b"1")
    await kill(store)
    message, lease = await pop_one(store, "grave")
    await ack(store, message, lease, DEAD, error="again")
    [letter] = await dead_letters(store)
    assert (letter.queue, letter.error, letter.payload) == ("grave", "again", b"1")


async def test_without_a_dead_queue_any_more_the_dead_stay_with_their_queue(
    store: Store,
) -> None:
    await with_grave(store, ORDERED)
    await push_many(store, "q", 2)
    await kill(store)
    await store.configure("q", options={"deadQueue": ""})
    await kill(store)
    assert len(await every(store.list_messages, "grave")) == 1
    assert [letter.payload for letter in await dead_letters(store)] == [b"2"]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_its_sender_wrote_does_not_hide_where_the_dead_came_from(
    store: Store, kind: QueueKind
) -> None:
    await with_grave(store, kind)
    forged = b' {"monarqDeadFrom":"elsewhere","monarqDeadError":"no","monarqDeadAttempts":9,"a":1} '
    await push(store, "q", headers=forged)
    await kill(store, DEAD)
    listed = store.list_items if kind is WORK else store.list_messages
    [moved] = await every(listed, "grave")
    assert headers_of(moved) == {
        "monarqDeadFrom": "q",
        "monarqDeadGroup": "" if kind is WORK else "g",
        "monarqDeadAttempts": 1,
        "monarqDeadError": "why",
        "a": 1,
    }


async def test_a_message_that_dies_again_elsewhere_says_where_it_died_last(store: Store) -> None:
    await with_grave(store, ORDERED)
    await store.configure("other grave", kind=ORDERED)
    await store.configure("other", kind=ORDERED, options={"deadQueue": "other grave"})
    await push(store, "q", headers=b'{"mine":1}')
    await kill(store, DEAD)
    message, lease = await pop_one(store, "grave")
    await ack(store, message, lease, DEAD, error="nobody wants it")
    assert await store.redrive(queue="grave", to_queue="other") == 1
    message, lease = await pop_one(store, "other")
    await ack(store, message, lease, DEAD, error="here neither")
    [moved] = await every(store.list_messages, "other grave")
    headers = headers_of(moved)
    assert (headers["mine"], headers["monarqDeadFrom"]) == (1, "other")
    assert headers["monarqDeadError"] == "here neither"


# --- the move of items ---


async def test_a_dead_item_is_moved_whole_and_is_ready_there_with_no_attempts(
    store: Store,
) -> None:
    await with_grave(store, WORK, maxAttempts=1)
    answer = await push(
        store, "q", b'{"a":1}', transaction_id="t", priority=9, headers=b'{"mine":1}'
    )
    await kill(store, FAILED)
    [moved] = await every(store.list_items, "grave")
    assert (moved.transaction_id, moved.payload, moved.state) == ("t", b'{"a":1}', ItemState.READY)
    assert moved.attempts == 0
    headers = headers_of(moved)
    assert (headers["mine"], headers["monarqDeadFrom"]) == (1, "q")
    assert (int(headers["monarqDeadAttempts"]), headers["monarqDeadError"]) == (1, "why")
    assert await every(store.list_items, "q") == []
    with pytest.raises(NotFoundError):
        await store.get_item(answer.message_id)
    assert await dead_letters(store) == []
    assert (await stats(store, "q")).dead == 1
    assert [m.payload for m in await drain(store, "grave")] == [b'{"a":1}']


@pytest.mark.parametrize("how", ["failed", "retry", "dead", "lease expired", "expired"])
async def test_whatever_kills_an_item_moves_it_once(
    store: Store, clock: ManualClock, how: str
) -> None:
    await with_grave(store, WORK, maxAttempts=1, leaseTime=10)
    if how == "expired":
        await store.configure("q", options={"expireTimeout": 10})
    await push(store, "q", b"1")
    if how == "lease expired":
        await pop_one(store, "q")
    elif how != "expired":
        await kill(store, AckStatus(how))
    clock.advance(10)
    await let_time_work(store)
    assert (await pop(store, "q")).messages == []
    await let_time_work(store)
    assert [row.payload for row in await every(store.list_items, "grave")] == [b"1"]
    assert await every(store.list_items, "q") == []
    assert await dead_letters(store) == []


async def test_a_dead_item_that_is_there_already_is_not_stored_twice(store: Store) -> None:
    await with_grave(store, WORK)
    await push(store, "grave", b"there first", transaction_id="t")
    await push(store, "q", b"later", transaction_id="t")
    await kill(store)
    assert [row.payload for row in await every(store.list_items, "grave")] == [b"there first"]


async def test_deaths_at_once_through_two_stores_are_each_moved_once(
    store: Store, open_another: OpenStore, clock: ManualClock
) -> None:
    other = await open_another()
    await with_grave(store, WORK, maxAttempts=1, leaseTime=10)
    await push_many(store, "q", 20)
    await pop(store, "q", 20)
    clock.advance(10)
    await asyncio.gather(
        *(through.lifecycle() for through in (store, other, store, other)),
        pop(store, "q", 5),
        pop(other, "q", 5),
    )
    await let_time_work(store)
    rows = await every(store.list_items, "grave")
    assert sorted(int(row.payload) for row in rows) == list(range(1, 21))
    assert await every(store.list_items, "q") == []


@pytest.mark.parametrize("kind", KINDS)
async def test_the_lifecycle_wakes_the_dead_queue_when_it_moves_something_there(
    store: Store, clock: ManualClock, kind: QueueKind
) -> None:
    await with_grave(store, kind, retryLimit=0, maxAttempts=1, leaseTime=10)
    await push(store, "q")
    await pop_one(store, "q")
    clock.advance(10)
    reports = await let_time_work(store)
    assert "grave" in [name for report in reports for name in report.wake]
    assert (await pop(store, "grave")).messages
