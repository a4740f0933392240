"""Dead letters as the published client lists them and brings them back."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.interop.clients import OLD
from tests.interop.verbs import await_pop, data, moment, of_version, pop, push


async def _bury(
    queen: Any, name: str, *payloads: Any, group: str | None = None, partition: str = "Default"
) -> list[Any]:
    """Let these messages die, each with its own error."""
    await push(queen, name, *payloads, partition=partition)
    queue = queen.queue(name).partition(partition).wait(False).batch(100)
    messages = await (queue if group is None else queue.group(group)).pop()
    for message in messages:
        context = {"error": f"error of {message['data']}"} | ({"group": group} if group else {})
        answer = await queen.ack(message, "dlq", context)
        assert (answer["success"], answer["dlq"]) == (True, True)
    return messages


async def test_a_dead_letter_tells_all_about_its_message(queen: Any, name: str) -> None:
    await queen.queue(name).config({"retry_limit": 1, "retry_delay": 0}).create()
    await push(queen, name, {"order": 1})
    for _ in range(2):
        [message] = await await_pop(queen, name, group=name)
        answer = await queen.ack(message, False, {"group": name, "error": "out of stock"})
    assert answer["dlq"] is True
    answer = await queen.queue(name).dlq(name).get()
    [letter] = answer["messages"]
    assert answer["total"] == 1
    for key in ("transactionId", "partitionId", "queue", "partition", "data", "createdAt"):
        assert letter[key] == message[key], key
    assert letter["messageId"] == message["id"]
    assert letter["consumerGroup"] == name
    assert letter["errorMessage"] == "out of stock"
    assert letter["retryCount"] == 1
    assert moment(letter["failedAt"]) >= moment(letter["createdAt"])


async def test_a_limit_without_measure_does_not_look_like_no_dead_letters(
    queen: Any, name: str
) -> None:
    await _bury(queen, name, 1, 2)
    answer = await queen.queue(name).dlq().limit(50_000).get()
    assert (len(answer["messages"]), answer["total"]) == (2, 2)


async def test_dead_letters_are_found_by_group_partition_and_time(queen: Any, name: str) -> None:
    groups = {f"{name}-1": "p1", f"{name}-2": "p2"}
    for group, partition in groups.items():
        await _bury(queen, name, f"of {group}", group=group, partition=partition)
    assert (await queen.queue(name).dlq().get())["total"] == 2
    for group, partition in groups.items():
        for dlq in (queen.queue(name).dlq(group), queen.queue(name).partition(partition).dlq()):
            assert data((await dlq.get())["messages"]) == [f"of {group}"]
    hour = timedelta(hours=1)
    before, after = ((datetime.now(UTC) + by).isoformat() for by in (-hour, hour))
    assert (await queen.queue(name).dlq().from_(before).to(after).get())["total"] == 2
    assert (await queen.queue(name).dlq().from_(after).get())["messages"] == []
    assert (await queen.queue(name).dlq().to(before).get())["total"] == 0
    assert (await queen.queue(name).dlq("nobody").get())["total"] == 0


async def test_dead_letters_come_in_pages_newest_first(queen: Any, name: str) -> None:
    await _bury(queen, name, *range(7))
    pages = []
    for offset in range(0, 9, 3):
        page = await queen.queue(name).dlq().limit(3).offset(offset).get()
        assert (page["total"], page["limit"], page["offset"]) == (7, 3, offset)
        pages.append(data(page["messages"]))
    assert pages == [[6, 5, 4], [3, 2, 1], [0]]


async def test_a_dead_letter_is_brought_back_by_its_message(queen: Any, name: str) -> None:
    [message] = await _bury(queen, name, "second chance", group=name)
    answer = await queen.admin.retry_message(message["partitionId"], message["transactionId"])
    assert answer["success"] is True
    assert (await queen.queue(name).dlq().get())["total"] == 0
    assert data(await await_pop(queen, name, group=name)) == ["second chance"]


async def test_a_message_that_is_not_dead_is_not_brought_back(queen: Any, name: str) -> None:
    [pushed] = await push(queen, name, "alive")
    with pytest.raises(Exception, match=pushed["transaction_id"]):
        await queen.admin.retry_message(pushed["partition_id"], pushed["transaction_id"])
    assert data(await pop(queen, name)) == ["alive"]


@of_version(OLD)
async def test_a_message_under_a_lease_is_moved_to_the_dead_letters_by_its_address(
    queen: Any, name: str
) -> None:
    await push(queen, name, "bad", "good")
    bad, good = await pop(queen, name)
    await queen.admin.move_message_to_dlq(bad["partitionId"], bad["transactionId"])
    assert data((await queen.queue(name).dlq().get())["messages"]) == ["bad"]
    assert (await queen.ack(good))["success"]
    assert await pop(queen, name) == []
