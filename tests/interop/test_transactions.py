"""Transactions of the published client."""

from typing import Any

import pytest

from tests.interop.clients import NEWEST
from tests.interop.conftest import NewQueen
from tests.interop.verbs import await_pop, data, of_version, pop, push


async def test_acks_and_pushes_take_effect_together(queen: Any, name: str) -> None:
    await push(queen, f"{name}-in", 1)
    [message] = await pop(queen, f"{name}-in")
    transaction = queen.transaction().ack(message)
    transaction.queue(f"{name}-out").partition("p").push([{"data": "a"}, {"data": "b"}])
    transaction.queue(f"{name}-log").push({"data": "c"})
    answer = await transaction.commit()
    assert answer["success"] is True
    assert answer["transactionId"]
    assert len(answer["results"]) == 3
    assert await pop(queen, f"{name}-in") == []
    assert data(await queen.queue(f"{name}-out").partition("p").wait(False).batch(9).pop()) == [
        "a",
        "b",
    ]
    assert data(await pop(queen, f"{name}-log")) == ["c"]


async def test_a_group_acks_in_a_transaction(queen: Any, name: str) -> None:
    await push(queen, name, 1, 2)
    messages = await pop(queen, name, group=name)
    await queen.transaction().ack(messages, "completed", {"consumer_group": name}).commit()
    assert await pop(queen, name, group=name) == []
    assert data(await pop(queen, name)) == [1, 2]


async def test_a_transaction_can_fail_a_message(queen: Any, name: str) -> None:
    await queen.queue(name).config({"retry_limit": 0}).create()
    await push(queen, name, "poison")
    await queen.transaction().ack(await pop(queen, name), "failed").commit()
    assert (await queen.queue(name).dlq().get())["total"] == 1


async def test_messages_of_several_leases_are_acked_together(queen: Any, name: str) -> None:
    await push(queen, name, 1, partition="a")
    await push(queen, name, 2, partition="b")
    messages = await pop(queen, name) + await pop(queen, name)
    assert len({message["leaseId"] for message in messages}) == 2
    await queen.transaction().ack(messages).commit()
    assert await pop(queen, name) == []


async def test_pushes_alone_are_stored_together(queen: Any, name: str) -> None:
    await queen.transaction().queue(name).push([{"data": None}, {"payload": [1]}]).commit()
    assert data(await pop(queen, name)) == [None, [1]]


async def test_a_transaction_under_an_expired_lease_does_nothing(
    new_queen: NewQueen, name: str
) -> None:
    slow, quick = new_queen(), new_queen()
    await slow.queue(name).config({"lease_time": 0.1}).create()
    await push(slow, name, 1)
    [stale] = await pop(slow, name)
    await slow.queue(name).config({"lease_time": 300}).create()
    [fresh] = await await_pop(quick, name)
    transaction = slow.transaction().ack(stale).queue(f"{name}-out").push({"data": "ghost"})
    with pytest.raises(Exception, match="lease"):
        await transaction.commit()
    assert await pop(slow, f"{name}-out") == []
    assert (await quick.ack(fresh))["success"]


async def test_a_failed_operation_is_named_and_undoes_all_others(queen: Any, name: str) -> None:
    await push(queen, name, 1)
    [message] = await pop(queen, name)
    transaction = queen.transaction().queue(f"{name}-out").push({"data": "ghost"})
    transaction.ack({**message, "transactionId": "never-pushed"}).ack(message)
    with pytest.raises(Exception, match="operation 1 failed"):
        await transaction.commit()
    assert await pop(queen, f"{name}-out") == []
    assert (await queen.ack(message))["success"]


@of_version(NEWEST)
async def test_a_transaction_id_in_a_transaction_is_stored_once(queen: Any, name: str) -> None:
    for _ in range(2):
        item = {"transactionId": "same", "data": 1}
        await queen.transaction().queue(name).push(item).commit()
    assert data(await pop(queen, name)) == [1]


@of_version(NEWEST)
async def test_a_rider_that_is_not_ours_is_refused_with_all_that_depends_on_it(
    queen: Any, name: str
) -> None:
    transactions = [
        queen.transaction().once("tests", name, ttl_seconds=60),
        queen.transaction().timer(name).key("k").payload({}).after_ms(10).schedule(),
    ]
    for transaction, rider in zip(transactions, ("kv", "timers"), strict=True):
        with pytest.raises(Exception, match=rider):
            await transaction.queue(name).push({"data": "ghost"}).commit()
    assert await pop(queen, name) == []
