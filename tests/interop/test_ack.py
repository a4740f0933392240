"""Acks by the published client, and what they make of a message."""

from typing import Any

import pytest

from tests.interop.clients import NEWEST, OLD
from tests.interop.conftest import NewQueen
from tests.interop.verbs import await_pop, of_version, pop, push


async def test_an_acked_message_is_not_delivered_again(queen: Any, name: str) -> None:
    await push(queen, name, 1)
    [message] = await pop(queen, name)
    answer = await queen.ack(message)
    assert answer["success"] is True
    assert answer["transactionId"] == message["transactionId"]
    assert (answer["queueName"], answer["partitionName"]) == (name, "Default")
    assert (answer["leaseReleased"], answer["dlq"]) == (True, False)
    assert await pop(queen, name) == []


async def test_a_failed_message_is_delivered_again(queen: Any, name: str) -> None:
    await queen.queue(name).config({"retry_delay": 0}).create()
    await push(queen, name, 1)
    [first] = await pop(queen, name)
    assert (await queen.ack(first, False, {"error": "try again"}))["success"]
    [second] = await await_pop(queen, name)
    assert second["id"] == first["id"]
    assert (first["attempts"], second["attempts"]) == (1, 2)


async def test_a_released_message_is_delivered_again_uncounted(queen: Any, name: str) -> None:
    await push(queen, name, 1)
    [first] = await pop(queen, name)
    assert (await queen.ack(first, "release"))["success"]
    [second] = await pop(queen, name)
    assert second["attempts"] == 1


@pytest.mark.parametrize("status", ["dlq", "dead"])
async def test_a_message_can_be_sent_to_the_dead_letters(
    queen: Any, name: str, status: str
) -> None:
    await push(queen, name, "dead", "alive")
    dead, alive = await pop(queen, name, group=name)
    answer = await queen.ack(dead, status, {"group": name, "error": "no use"})
    assert (answer["success"], answer["dlq"]) == (True, True)
    assert (await queen.ack(alive, "success", {"group": name}))["success"]
    [letter] = (await queen.queue(name).dlq(name).get())["messages"]
    assert (letter["data"], letter["errorMessage"]) == ("dead", "no use")


async def test_a_batch_is_acked_at_once(queen: Any, name: str) -> None:
    await push(queen, name, *range(50))
    messages = await pop(queen, name)
    answer = await queen.ack(messages)
    assert answer["success"] is True
    assert [result["success"] for result in answer["results"]] == [True] * 50
    ids = [message["transactionId"] for message in messages]
    assert [result["transactionId"] for result in answer["results"]] == ids
    assert await pop(queen, name) == []


async def test_each_message_of_a_batch_may_have_a_status_of_its_own(queen: Any, name: str) -> None:
    await queen.queue(name).config({"retry_limit": 0}).create()
    await push(queen, name, "a", "b", "c")
    messages = await pop(queen, name)
    messages[1] |= {"_status": False, "_error": "only this one"}
    answer = await queen.ack(messages)
    assert [result["dlq"] for result in answer["results"]] == [False, True, False]
    [letter] = (await queen.queue(name).dlq().get())["messages"]
    assert (letter["data"], letter["errorMessage"]) == ("b", "only this one")
    assert await pop(queen, name) == []


async def test_a_group_acks_for_itself_alone(queen: Any, name: str) -> None:
    await push(queen, name, 1)
    [mine] = await pop(queen, name, group=f"{name}-1")
    [theirs] = await pop(queen, name, group=f"{name}-2")
    assert (await queen.ack(mine, True, {"group": f"{name}-1"}))["success"]
    assert (await queen.ack([theirs], True, {"group": f"{name}-2"}))["success"]
    assert await pop(queen, name, group=f"{name}-1") == []


async def test_a_second_ack_is_refused(queen: Any, name: str) -> None:
    await push(queen, name, 1)
    [message] = await pop(queen, name)
    assert (await queen.ack(message))["success"]
    again = await queen.ack(message)
    assert again["success"] is False
    assert "answered" in again["error"]


async def test_an_ack_under_an_expired_lease_is_refused_and_changes_nothing(
    new_queen: NewQueen, name: str
) -> None:
    slow, quick = new_queen(), new_queen()
    await slow.queue(name).config({"lease_time": 0.1}).create()
    await push(slow, name, 1)
    [stale] = await pop(slow, name)
    await slow.queue(name).config({"lease_time": 300}).create()
    [fresh] = await await_pop(quick, name)
    assert fresh["id"] == stale["id"]
    refused = await slow.ack(stale)
    assert refused["success"] is False
    assert "lease" in refused["error"]
    assert (await quick.ack(fresh))["success"]


async def test_an_ack_without_its_lease_is_taken_while_the_message_is_leased(
    queen: Any, name: str
) -> None:
    await push(queen, name, 1)
    [message] = await pop(queen, name)
    bare = {key: message[key] for key in ("transactionId", "partitionId")}
    assert (await queen.ack(bare))["success"]
    refused = await queen.ack(bare)
    assert refused["success"] is False


async def test_an_ack_of_nothing_that_exists_is_refused(queen: Any, name: str) -> None:
    await push(queen, name, 1)
    [message] = await pop(queen, name)
    unknown = await queen.ack({**message, "transactionId": "never-pushed"})
    assert unknown["success"] is False
    assert "no " in unknown["error"]
    assert (await queen.ack(message))["success"]


async def test_an_unknown_status_is_refused(queen: Any, name: str) -> None:
    await push(queen, name, 1)
    [message] = await pop(queen, name)
    refused = await queen.ack(message, "finished")
    assert refused["success"] is False
    assert "status" in refused["error"]


async def _one_bad_ack(queen: Any, name: str) -> dict[str, Any]:
    await push(queen, name, 1, 2)
    first, second = await pop(queen, name)
    return await queen.ack([first, {**second, "transactionId": "never-pushed"}, second])


@of_version(OLD)
async def test_one_bad_ack_spoils_only_itself(queen: Any, name: str) -> None:
    answer = await _one_bad_ack(queen, name)
    assert [result["success"] for result in answer["results"]] == [True, False, True]
    assert "no " in answer["results"][1]["error"]


@of_version(NEWEST)
async def test_one_bad_ack_is_reported_by_the_newest_client(queen: Any, name: str) -> None:
    answer = await _one_bad_ack(queen, name)
    assert answer["success"] is False
    assert answer["error"] == answer["results"][1]["error"]
    assert [result["success"] for result in answer["results"]] == [True, False, True]
