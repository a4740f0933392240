"""Pushes by the published client."""

from typing import Any
from uuid import uuid4

import pytest

from tests.interop.clients import NEWEST, OLD
from tests.interop.conftest import NewQueen
from tests.interop.verbs import data, moment, of_version, pop, push

PAYLOADS = [
    None,
    True,
    0,
    -1.5e300,
    2**70,
    "",
    'text with "quotes", \\ and \n',
    "ünïcødé 😀 \u2028",
    [],
    {},
    [1, [2, [3, {"deep": [None]}]]],
    {"key": "value", "nested": {"list": [1, 2.5, "three"]}, "": 0},
]


async def test_a_push_answers_with_the_ids_of_the_message(queen: Any, name: str) -> None:
    [result] = await queen.queue(name).push({"data": {"n": 1}})
    assert result["status"] == "queued"
    [message] = await pop(queen, name)
    assert message["data"] == {"n": 1}
    assert message["id"] == result["message_id"]
    assert message["transactionId"] == result["transaction_id"]
    assert message["partitionId"] == result["partition_id"]
    assert (message["queue"], message["partition"]) == (name, "Default")
    assert (message["seq"], message["attempts"]) == (1, 1)
    moment(message["createdAt"])


async def test_every_json_value_arrives_as_it_was_pushed(queen: Any, name: str) -> None:
    await push(queen, name, *PAYLOADS)
    assert data(await pop(queen, name)) == PAYLOADS


async def test_an_item_without_data_is_itself_the_payload(queen: Any, name: str) -> None:
    await queen.queue(name).push({"plain": 1})
    await queen.queue(name).push({"payload": {"wrapped": 2}})
    assert data(await pop(queen, name)) == [{"plain": 1}, {"wrapped": 2}]


async def test_a_push_of_nothing_is_no_error(queen: Any, name: str) -> None:
    assert await queen.queue(name).push([]) == []


async def test_many_messages_keep_their_order(queen: Any, name: str) -> None:
    numbers = list(range(500))
    for start in range(0, 500, 100):
        results = await push(queen, name, *numbers[start : start + 100])
        assert {result["status"] for result in results} == {"queued"}
    assert data(await pop(queen, name, batch=1000)) == numbers


async def test_partitions_are_apart(queen: Any, name: str) -> None:
    await push(queen, name, "a1", "a2", partition="a")
    await push(queen, name, "b1", partition="b")
    of_b = await queen.queue(name).partition("b").wait(False).batch(10).pop()
    assert data(of_b) == ["b1"]
    assert data(await pop(queen, name)) == ["a1", "a2"]


async def test_a_transaction_id_is_stored_once(queen: Any, name: str) -> None:
    item = {"transactionId": f"{name}/order 1", "data": "first"}
    [first] = await queen.queue(name).push(item)
    [second] = await queen.queue(name).push({**item, "data": "second"})
    assert (first["status"], second["status"]) == ("queued", "duplicate")
    assert second["message_id"] == first["message_id"]
    assert second["transaction_id"] == first["transaction_id"] == item["transactionId"]
    assert data(await pop(queen, name)) == ["first"]


async def test_duplicates_within_one_push_are_told_apart(queen: Any, name: str) -> None:
    seen: dict[str, list[Any]] = {"queued": [], "duplicate": []}

    async def queued(items: list[Any]) -> None:
        seen["queued"] += [item["payload"] for item in items]

    async def duplicate(items: list[Any], error: Exception) -> None:
        seen["duplicate"] += [item["payload"] for item in items]

    items = [{"transactionId": key, "data": n} for n, key in enumerate(["x", "y", "x", "y", "z"])]
    await queen.queue(name).push(items).on_success(queued).on_duplicate(duplicate)
    assert seen == {"queued": [0, 1, 4], "duplicate": [2, 3]}
    assert data(await pop(queen, name)) == [0, 1, 4]


async def test_the_same_transaction_id_in_another_partition_is_another_message(
    queen: Any, name: str
) -> None:
    for partition in ("a", "b"):
        [result] = await queen.queue(name).partition(partition).push({"transactionId": "same"})
        assert result["status"] == "queued"


async def test_a_trace_id_travels_with_its_message(queen: Any, name: str) -> None:
    trace_id = str(uuid4())
    [result] = await queen.queue(name).push({"traceId": trace_id, "data": 1})
    [message] = await pop(queen, name)
    assert result["trace_id"] == message["traceId"] == trace_id


async def test_a_refused_push_raises_what_the_server_says(queen: Any, name: str) -> None:
    with pytest.raises(Exception, match="partition"):
        await push(queen, name, 1, partition="x" * 300)
    assert await pop(queen, name) == []


async def test_a_refused_push_tells_the_callback_instead(queen: Any, name: str) -> None:
    told: list[str] = []

    async def tell(items: list[Any], error: Exception) -> None:
        told.append(str(error))

    await queen.queue(f"{name}\x00").push({"data": 1}).on_error(tell)
    assert "queue" in told[0]


@of_version(OLD)
async def test_a_full_queue_refuses_the_old_clients_push(queen: Any, name: str) -> None:
    await queen.queue(name).config({"max_size": 2}).create()
    await push(queen, name, 1, 2)
    with pytest.raises(Exception, match=name):
        await push(queen, name, 3)
    assert data(await pop(queen, name)) == [1, 2]


@of_version(NEWEST)
async def test_a_full_queue_tells_the_newest_client_when_to_try_again(
    new_queen: NewQueen, name: str
) -> None:
    queen = new_queen(retry_429={"max_attempts": 1})
    await queen.queue(name).config({"max_size": 2}).create()
    await push(queen, name, 1, 2)
    with pytest.raises(Exception, match=name) as refused:
        await push(queen, name, 3)
    assert refused.value.code == "queue_full"
    assert refused.value.retry_after_seconds > 0
