"""Pushes given as columns: they become what the same pushes given as items become."""

import random

import pytest

from monarq.crypto import SEALS
from monarq.errors import InvalidRequestError, NotFoundError, QueueFullError
from monarq.model import MAX_BATCH, Push, PushColumns, Pushed, PushItem, PushStatus, QueueKind
from monarq.store import Store
from monarq.store.segments import MAX_BYTES, MAX_MESSAGES
from tests.store.calls import code_of, pop, push, push_items, unwrap
from tests.store.scenarios import (
    ORDERED,
    WORK,
    drain,
    every,
    nothing_changes,
    numbers,
    stored_payloads,
)


def columns(
    first: int, count: int, *, ids: bool = True, queue: str = "q", partition: str = "p"
) -> PushColumns:
    """The payloads and ids `first`, `first + 1` …"""
    given = range(first, first + count)
    own = [f"t-{n}" for n in given] if ids else ()
    return PushColumns(queue, partition, [b"%d" % n for n in given], own)


async def pushed(store: Store, items: PushColumns, producer: str | None = None) -> list[Pushed]:
    return list(unwrap(await store.push([Push(items, producer)])))


def test_the_items_are_what_the_columns_say() -> None:
    given = PushColumns("q", "p", [b"1", b'"two"', b"[]"], ["a", "b", "c"])
    assert list(given) == [
        PushItem("q", b"1", "p", "a"),
        PushItem("q", b'"two"', "p", "b"),
        PushItem("q", b"[]", "p", "c"),
    ]
    assert (len(given), given[1], given[1:]) == (3, list(given)[1], list(given)[1:])
    assert list(columns(1, 1, ids=False)) == [PushItem("q", b"1", "p")]


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("producer", [None, "somebody"])
async def test_columns_are_answered_and_kept_as_the_same_items_are(
    store: Store, ids: bool, producer: str | None
) -> None:
    given = columns(1, 5, ids=ids)
    as_items = [
        PushItem("other", item.payload, "p", item.transaction_id, item.trace_id) for item in given
    ]
    answers = await pushed(store, given, producer)
    expected = await push_items(store, *as_items, producer=producer)
    assert [(a.status, a.seq) for a in answers] == [(a.status, a.seq) for a in expected]
    assert {a.queue for a in answers} == {"q"}
    own = [a.transaction_id for a in answers]
    assert own == ([f"t-{n}" for n in range(1, 6)] if ids else [a.message_id for a in answers])
    found = await every(store.list_messages, "q")
    wanted = await every(store.list_messages, "other")
    assert [row.payload for row in found] == [row.payload for row in wanted]
    assert [row.transaction_id for row in found] == own
    assert [row.producer for row in found] == [producer] * 5


@pytest.mark.parametrize("count", [1, MAX_MESSAGES, MAX_MESSAGES + 1, MAX_BATCH])
async def test_every_message_is_delivered_in_order_however_many_there_are(
    store: Store, count: int
) -> None:
    await pushed(store, columns(1, count))
    answers = await pushed(store, columns(count + 1, 3))
    assert [answer.seq for answer in answers] == [count + 1, count + 2, count + 3]
    assert numbers(await drain(store, "q")) == list(range(1, count + 4))


async def test_large_payloads_come_back_as_they_were(store: Store) -> None:
    sizes = [10, MAX_BYTES, 1, MAX_BYTES + 1, MAX_BYTES // 2, MAX_BYTES // 2, 3]
    payloads = [b'"%s"' % (b"%d" % (n % 10) * size) for n, size in enumerate(sizes)]
    await pushed(store, PushColumns("q", "p", payloads))
    assert [message.payload for message in await drain(store, "q")] == payloads


async def test_ids_that_are_there_are_duplicates_and_the_others_are_stored(store: Store) -> None:
    first = await pushed(store, columns(1, 10))
    again = await pushed(store, columns(6, 10))
    assert [a.status for a in again] == [PushStatus.DUPLICATE] * 5 + [PushStatus.QUEUED] * 5
    assert [a.seq for a in again] == list(range(6, 16))
    assert [a.message_id for a in again[:5]] == [a.message_id for a in first[5:]]
    assert numbers(await drain(store, "q")) == list(range(1, 16))


async def test_an_id_that_comes_twice_is_stored_once(store: Store) -> None:
    given = PushColumns("q", "p", [b"1", b"2", b"3"], ["a", "b", "a"])
    answers = await pushed(store, given)
    assert [(a.status, a.seq) for a in answers] == [
        (PushStatus.QUEUED, 1),
        (PushStatus.QUEUED, 2),
        (PushStatus.DUPLICATE, 1),
    ]
    assert numbers(await drain(store, "q")) == [1, 2]


async def test_columns_share_a_call_with_others_as_if_each_came_alone(store: Store) -> None:
    """Also where they meet in a partition, in any order, and repeat what another one has."""
    order = random.Random(4)
    for turn in range(8):
        queue = f"q-{turn}"
        calls = [
            Push(columns(1, 3, queue=queue)),
            Push(columns(3, 3, queue=queue)),
            Push([PushItem(queue, b"9", "p", "t-4"), PushItem(queue, b"10", "p")]),
            Push(columns(20, 2, queue=queue, ids=False)),
            Push([PushItem(queue, b"11", "other", "t-1")]),
        ]
        order.shuffle(calls)
        kept: dict[tuple[str, str], bytes] = {}
        for number, call in enumerate(calls):
            for place, item in enumerate(call.items):
                own = item.transaction_id or f"{number}/{place}"
                kept.setdefault((item.partition, own), item.payload)
        answers = await store.push(calls)
        assert [code_of(answer) for answer in answers] == [None] * 5
        for partition in ("p", "other"):
            wanted = [payload for (name, _), payload in kept.items() if name == partition]
            assert await stored_payloads(store, queue, partition=partition) == wanted


async def test_columns_fill_a_queue_up_to_its_max_size_and_no_further(store: Store) -> None:
    await store.configure("q", options={"maxSize": 5})
    async with nothing_changes(store):
        with pytest.raises(QueueFullError):
            await pushed(store, columns(1, 6))
    await pushed(store, columns(1, 5))


async def test_columns_for_a_work_queue_are_items_of_it(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await pushed(store, columns(1, 3, queue="w", partition="Default"))
    assert numbers(await pop(store, "w", batch=10)) == [1, 2, 3]
    with pytest.raises(InvalidRequestError, match="partition"):
        await pushed(store, columns(1, 3, queue="w"))


@pytest.mark.parametrize(("kind", "partition"), [(ORDERED, "p"), (WORK, "Default")])
async def test_columns_for_an_encrypted_queue_are_sealed(
    store: Store, kind: QueueKind, partition: str
) -> None:
    await store.configure("q", kind=kind, options={"encryptionEnabled": True})
    await pushed(store, columns(1, 3, partition=partition))
    assert numbers(await drain(store, "q")) == [1, 2, 3]


async def test_columns_for_a_work_queue_share_a_call_with_others(store: Store) -> None:
    for name in ("v", "w"):
        await store.configure(name, kind=WORK)
    calls = [
        Push(columns(1, 3, queue="w", partition="Default")),
        Push([PushItem("w", b"40", priority=9), PushItem("v", b"5", trace_id="trace")]),
        Push(columns(6, 2, queue="v", partition="Default", ids=False), "somebody"),
        Push(columns(3, 2, queue="w", partition="Default")),
    ]
    answers = await store.push(calls)
    assert [code_of(answer) for answer in answers] == [None] * 4
    rows = await every(store.list_items, "w")
    assert [row.payload for row in rows] == [b"1", b"2", b"3", b"40", b"4"]
    assert [row.priority for row in rows] == [5, 5, 5, 9, 5]
    rows = await every(store.list_items, "v")
    assert [row.payload for row in rows] == [b"5", b"6", b"7"]
    assert [row.trace_id for row in rows] == ["trace", None, None]
    assert [row.producer for row in rows] == [None, "somebody", "somebody"]


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (PushColumns("", "p", [b"1"]), "queue"),
        (PushColumns("q", "p\n", [b"1"]), "partition"),
        (PushColumns("q", "p", []), "items"),
        (PushColumns("q", "p", [b"1"] * (MAX_BATCH + 1)), "items"),
        (PushColumns("q", "p", [b"1", b""]), "payload"),
        (PushColumns("q", "p", [b"1", SEALS[:1] + b"1"]), "payload"),
        (PushColumns("q", "p", [b"1", SEALS[1:] + b"1"]), "payload"),
        (PushColumns("q", "p", [b"1", b"1" * ((16 << 20) + 1)]), "payload"),
        (PushColumns("q", "p", [b"1", b"2"], ["a"]), "transactionIds"),
        (PushColumns("q", "p", [b"1", b"2"], ["a", ""]), "transactionId"),
        (PushColumns("q", "p", [b"1", b"2"], ["a", "b\nc"]), "transactionId"),
        (PushColumns("q", "p", [b"1", b"2"], ["a", "x" * 256]), "transactionId"),
    ],
)
async def test_columns_with_something_wrong_are_refused_and_others_are_not(
    store: Store, given: PushColumns, wrong: str
) -> None:
    refused, good = await store.push([Push(given), Push(columns(1, 1, queue="good"))])
    assert code_of(refused) == "invalid_request"
    assert wrong in str(refused)
    assert code_of(good) is None
    with pytest.raises(NotFoundError):
        await store.get_queue("q")


async def test_an_id_in_the_form_of_the_partitions_own_is_the_message_that_has_it(
    store: Store,
) -> None:
    first = await push(store, "q", b"1", partition="p")
    [known, new] = await pushed(store, PushColumns("q", "p", [b"2", b"3"], [first.message_id, "x"]))
    assert (known.status, known.seq) == (PushStatus.DUPLICATE, first.seq)
    assert (new.status, new.seq) == (PushStatus.QUEUED, 2)
