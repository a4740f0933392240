"""Dead letters over HTTP: finding, redriving and purging them."""

from typing import Any

import pytest

from tests.server.application import Api


async def kill(api: Api, queue: str, count: int, group: str = "__QUEUE_MODE__") -> None:
    """Let the next messages of a queue die, each with an error of its own."""
    for number in range(count):
        popped = await api.pop(queue, f"batch=1&consumerGroup={group}")
        [message] = popped["messages"]
        body = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
        more = {"status": "dead", "error": f"error {number}", "consumerGroup": group}
        answer = await api.post("/api/v1/ack", {**body, **more})
        assert answer.json["dlq"] is True, answer


async def dead(api: Api, query: str = "") -> Any:
    answer = await api.get(f"/api/v1/dlq?{query}")
    assert answer.status == 200, answer
    return answer.json


async def payloads(api: Api, query: str = "") -> list[Any]:
    return [letter["data"] for letter in (await dead(api, query))["messages"]]


async def test_a_dead_letter_has_all_that_is_known_of_the_message(api: Api) -> None:
    await api.configure("q", retryLimit=0)
    await api.push(
        {"queue": "q", "partition": "p", "payload": {"x": 1}, "transactionId": "t", "traceId": "r"}
    )
    await kill(api, "q", 1, "g")
    answer = await dead(api)
    [letter] = answer["messages"]
    assert answer["total"] == 1
    assert letter["messageId"] == f"{letter['partitionId']}-1"
    assert letter["transactionId"] == "t"
    assert (letter["queue"], letter["partition"], letter["consumerGroup"]) == ("q", "p", "g")
    assert (letter["errorMessage"], letter["data"]) == ("error 0", {"x": 1})
    assert (letter["retryCount"], letter["attempts"]) == (0, 1)
    assert letter["failedAt"] >= letter["createdAt"]
    assert letter["traceId"] == "r"


async def test_dead_letters_are_listed_newest_first_by_cursor_and_by_offset(api: Api) -> None:
    await api.push_payloads("q", *range(7))
    await kill(api, "q", 7)
    expected = [6, 5, 4, 3, 2, 1, 0]
    assert await payloads(api) == expected
    for offset in (0, 3, 6, 7):
        found = await payloads(api, f"limit=3&offset={offset}")
        assert found == expected[offset : offset + 3]
    seen: list[Any] = []
    after = ""
    while True:
        page = await dead(api, f"limit=2{after}")
        assert (page["total"], page["limit"]) == (7, 2)
        seen += [letter["data"] for letter in page["messages"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert seen == expected


async def test_dead_letters_are_found_by_queue_group_partition_and_time(api: Api) -> None:
    await api.push_payloads("a", 1, partition="x")
    await api.push_payloads("a", 2, partition="y")
    await api.push_payloads("b", 3)
    await kill(api, "a", 2, "g")
    api.clock.advance(60)
    await kill(api, "b", 1, "h")
    [newest, *_] = (await dead(api))["messages"]
    for query, expected in (
        ("queue=a", {1, 2}),
        ("consumerGroup=h", {3}),
        ("queue=a&partition=y", {2}),
        (f"from={newest['failedAt']}", {3}),
        (f"queue=a&from={newest['failedAt']}", set()),
        ("queue=missing", set()),
    ):
        answer = await dead(api, query)
        assert {letter["data"] for letter in answer["messages"]} == expected, query
        assert answer["total"] == len(expected), query


async def test_redriving_puts_back_what_matches_and_nothing_else(api: Api) -> None:
    await api.push_payloads("a", 1, 2)
    await api.push_payloads("b", 3)
    await kill(api, "a", 2)
    await kill(api, "b", 1)
    answer = await api.post("/api/v1/dlq/redrive", {"queue": "a", "limit": 1})
    assert answer.json == {"redriven": 1}
    assert await api.data("a") == [1]
    assert sorted(await payloads(api)) == [2, 3]
    [three] = (await dead(api, "queue=b"))["messages"]
    assert (await api.post("/api/v1/dlq/redrive", {"ids": [three["id"]]})).json["redriven"] == 1
    assert await api.data("b") == [3]
    assert (await api.post("/api/v1/dlq/redrive", {"all": True})).json == {"redriven": 1}
    assert await payloads(api) == []


async def test_redriving_goes_to_another_queue_if_it_exists(api: Api) -> None:
    await api.push_payloads("q", 1)
    await kill(api, "q", 1)
    missing = await api.post("/api/v1/dlq/redrive", {"queue": "q", "toQueue": "other"})
    assert missing.status == 404
    await api.configure("other")
    answer = await api.post("/api/v1/dlq/redrive", {"queue": "q", "toQueue": "other"})
    assert answer.json == {"redriven": 1}
    assert await api.data("other") == [1]
    assert await api.pop("q") is None


async def test_purging_removes_what_matches_for_good(api: Api) -> None:
    await api.push_payloads("a", 1, 2)
    await api.push_payloads("b", 3)
    await kill(api, "a", 2)
    await kill(api, "b", 1)
    [newest, _] = (await dead(api, "queue=a"))["messages"]
    path = f"/api/v1/dlq?ids={newest['id']}"
    assert (await api.request("DELETE", path, None, {})).json == {"deleted": 1}
    assert sorted(await payloads(api)) == [1, 3]
    answer = await api.request("DELETE", "/api/v1/dlq?queue=b", None, {})
    assert answer.json == {"deleted": 1}
    assert (await api.request("DELETE", "/api/v1/dlq?all=true", None, {})).json == {"deleted": 1}
    assert (await dead(api))["total"] == 0


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", "/api/v1/dlq", None),
        ("DELETE", "/api/v1/dlq?all=false", None),
        ("DELETE", "/api/v1/dlq?all=true&queue=q", None),
        ("POST", "/api/v1/dlq/redrive", {}),
        ("POST", "/api/v1/dlq/redrive", None),
        ("POST", "/api/v1/dlq/redrive", {"all": True, "queue": "q"}),
        ("POST", "/api/v1/dlq/redrive", {"queu": "q"}),
        ("POST", "/api/v1/dlq/redrive", {"ids": []}),
        ("POST", "/api/v1/dlq/redrive", {"ids": ["x"]}),
        ("POST", "/api/v1/dlq/redrive", {"queue": "q", "limit": 0}),
        ("POST", "/api/v1/dlq/redrive", {"queue": "q", "from": "yesterday"}),
    ],
)
async def test_a_filter_that_was_forgotten_or_misspelt_touches_nothing(
    memory_api: Api, method: str, path: str, body: Any
) -> None:
    await memory_api.push_payloads("q", 1)
    await kill(memory_api, "q", 1)
    assert (await memory_api.request(method, path, body)).status == 400
    assert await payloads(memory_api) == [1]
