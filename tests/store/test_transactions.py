"""Transactions: pushes and acks on both kinds, several in one call, and what they do together."""

import asyncio

import pytest

from monarq.clock import ManualClock
from monarq.errors import MonarqError, TransactionFailedError
from monarq.model import Ack, Acked, ItemState, Push, Pushed, PushItem, PushStatus, Transaction
from monarq.store import Store
from tests.store.calls import ack, ack_of, code_of, pop, push, push_many, transaction
from tests.store.conftest import OpenStore
from tests.store.scenarios import (
    COMPLETED,
    DEAD,
    RELEASE,
    WORK,
    dead_letters,
    drain,
    every,
    group_row,
    stats,
    stored_payloads,
)
from tests.store.transaction_scene import make_scene

pytestmark = pytest.mark.smoke


async def test_all_operations_of_a_good_transaction_are_carried_out_and_answered_in_order(
    store: Store, clock: ManualClock
) -> None:
    scene = await make_scene(store, clock)
    done = await transaction(store, *scene.good)
    pushed, one, item_pushed, two, item, three, other = done.results
    assert isinstance(pushed, list)
    assert isinstance(item_pushed, list)
    assert [(p.queue, p.seq, p.status) for p in [*pushed, *item_pushed]] == [
        ("q", 7, PushStatus.QUEUED),
        ("brand new", 1, PushStatus.QUEUED),
        ("w", 6, PushStatus.QUEUED),
    ]
    for result in (one, two, item, three, other):
        assert isinstance(result, Acked)
    acked = [result for result in (one, two, three) if isinstance(result, Acked)]
    assert [a.dead for a in acked] == [0, 1, 1]
    assert [a.lease_released for a in acked] == [False, False, False]
    assert sorted(letter.seq for letter in await dead_letters(store)) == [2, 3]
    await ack(store, scene.messages.messages[3], scene.messages.lease_id)
    assert [m.seq for m in await drain(store, "q")] == [5, 6, 7]
    assert (await stats(store, "w")).states["done"] == 1
    assert [row.payload for row in await every(store.list_items, "grave")] == [b"2"]
    assert await stored_payloads(store, "brand new") == [b"1"]


# --- several in one call ---


async def test_a_failed_transaction_does_not_hurt_the_others_of_its_call(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("full", options={"maxSize": 2})

    def into(queue: str, count: int, payload: bytes) -> Push:
        return Push([PushItem(queue, payload)] * count)

    outcomes = await store.transaction(
        [
            Transaction([into("a", 1, b"1"), into("full", 2, b"1")]),
            Transaction([into("a", 1, b"2"), into("full", 1, b"2")]),
            Transaction([into("a", 1, b"3"), into("b", 1, b"3")]),
            Transaction([Ack(lease_id="99999-0123456789abcdef"), into("b", 1, b"4")]),
            Transaction([into("b", 1, b"5")]),
        ]
    )
    assert [code_of(outcome) for outcome in outcomes] == [
        None,
        "transaction_failed",
        None,
        "transaction_failed",
        None,
    ]
    assert await stored_payloads(store, "a") == [b"1", b"3"]
    assert await stored_payloads(store, "b") == [b"3", b"5"]
    assert await stored_payloads(store, "full") == [b"1", b"1"]


async def test_transactions_of_one_call_see_what_those_before_them_did(store: Store) -> None:
    await push_many(store, "q", 2)
    popped = await pop(store, "q", 1)
    request = Transaction(
        [
            Ack(lease_id=popped.lease_id),
            Push([PushItem("out", b"1", transaction_id="once")]),
        ]
    )
    push_alone = Transaction([Push([PushItem("out", b"2", transaction_id="once")])])
    first, second, third = await store.transaction([request, request, push_alone])
    assert not isinstance(first, MonarqError)
    assert isinstance(second, TransactionFailedError)
    assert second.cause.code == "lease_unknown"
    assert not isinstance(third, MonarqError)
    [[pushed]] = [r for r in third.results if isinstance(r, list)]
    assert (pushed.status, pushed.seq) == (PushStatus.DUPLICATE, 1)


# --- what pushes and acks do together ---


async def test_pushes_come_first_so_an_answer_to_the_same_partition_leaves_them_to_come(
    store: Store,
) -> None:
    await push(store, "q", b"1")
    popped = await pop(store, "q")
    await transaction(store, Ack(lease_id=popped.lease_id), Push([PushItem("q", b"2")]))
    assert (await group_row(store, "q", "__QUEUE_MODE__")).lag == 1
    assert [m.payload for m in await drain(store, "q")] == [b"2"]


async def test_a_duplicate_push_is_no_failure(store: Store) -> None:
    await push(store, "out", b"first", transaction_id="t")
    await push(store, "in")
    popped = await pop(store, "in")
    done = await transaction(
        store,
        Push([PushItem("out", b"second", transaction_id="t")]),
        Ack(lease_id=popped.lease_id),
        Push([PushItem("out", b"%d" % n, transaction_id="u") for n in (3, 4)]),
    )
    pushed: list[Pushed] = []
    for result in done.results:
        if isinstance(result, list):
            pushed += result
    assert [(p.status, p.seq) for p in pushed] == [
        (PushStatus.DUPLICATE, 1),
        (PushStatus.QUEUED, 2),
        (PushStatus.DUPLICATE, 2),
    ]
    assert await drain(store, "in") == []


async def test_a_chain_of_transactions_moves_each_message_exactly_once(store: Store) -> None:
    await push_many(store, "in", 10)
    for _ in range(10):
        popped = await pop(store, "in")
        [message] = popped.messages
        await transaction(
            store,
            Ack(lease_id=popped.lease_id),
            Push([PushItem("out", message.payload, transaction_id=message.transaction_id)]),
        )
    assert await stored_payloads(store, "out") == [b"%d" % n for n in range(1, 11)]
    assert await drain(store, "in") == []


async def test_a_lease_over_several_partitions_is_answered_in_one_transaction(
    store: Store,
) -> None:
    for partition in "abc":
        await push_many(store, "q", 2, partition=partition)
    popped = await pop(store, "q", 6, partitions=3)
    statuses = [COMPLETED, RELEASE, COMPLETED, COMPLETED, DEAD, COMPLETED]
    done = await transaction(
        store,
        *(
            ack_of(message, popped.lease_id, status)
            for message, status in zip(popped.messages, statuses, strict=True)
        ),
        Push([PushItem("q", b"9", partition=name) for name in "cab"]),
    )
    assert len(done.results) == 7
    assert [(m.partition, m.seq) for m in await drain(store, "q")] == [
        ("a", 2),
        ("a", 3),
        ("b", 3),
        ("c", 3),
    ]
    assert [letter.partition for letter in await dead_letters(store)] == ["c"]


async def test_an_item_completed_in_a_transaction_keeps_its_result(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await push(store, "w")
    popped = await pop(store, "w")
    [item] = popped.messages
    await transaction(
        store,
        ack_of(item, popped.lease_id, result=b'{"ok":true}'),
        Push([PushItem("w", b"next", priority=1, delay_seconds=5)]),
    )
    assert (await store.get_item(item.id)).state is ItemState.DONE
    [row] = (await store.get_item(item.id)).history
    assert row.result == b'{"ok":true}'
    assert (await stats(store, "w")).states["scheduled"] == 1


async def test_crossing_transactions_of_two_stores_end_without_deadlock_or_loss(
    store: Store, open_another: OpenStore
) -> None:
    other = await open_another()
    names = [f"p{n}" for n in range(6)]
    for partition in names:
        await push_many(store, "in", 4, partition=partition)

    async def mover(through: Store, reverse: bool) -> int:
        moved = 0
        while True:
            popped = await pop(through, "in", 3, partitions=3)
            if not popped.messages:
                return moved
            items = [
                PushItem("out", b"1", partition=name, transaction_id=message.id)
                for message in popped.messages
                for name in (names[::-1] if reverse else names)
            ]
            await transaction(
                through,
                *(ack_of(message, popped.lease_id) for message in popped.messages),
                Push(items),
            )
            moved += len(popped.messages)

    moved = await asyncio.wait_for(
        asyncio.gather(
            *(mover(through, bool(n % 2)) for n, through in enumerate((store, other, store, other)))
        ),
        60,
    )
    assert sum(moved) == 24
    assert (await stats(store, "out")).stored == 24 * 6
    for part in await store.export_plan("out"):
        assert (part.first_seq, part.last_seq) == (1, 24)
