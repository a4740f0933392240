"""Looking at single messages over HTTP, deleting them, and retrying dead ones."""

from typing import Any
from urllib.parse import quote

import pytest

from tests.server.application import Api


async def listed(api: Api, query: str) -> list[dict[str, Any]]:
    """All of a list, page by page."""
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        answer = await api.get(f"/api/v1/messages?{query}{after}")
        assert answer.status == 200, answer
        found += answer.json["messages"]
        if answer.json["next"] is None:
            return found
        after = f"&after={quote(answer.json['next'])}"


async def test_messages_are_listed_as_they_were_pushed(api: Api) -> None:
    payloads = [None, {"a": [1, 2.5, "x"]}, "text", 12345678901234567890]
    await api.push_payloads("q", *payloads)
    rows = await listed(api, "queue=q")
    assert [row["data"] for row in rows] == payloads
    assert [row["seq"] for row in rows] == [1, 2, 3, 4]
    assert {row["status"] for row in rows} == {"pending"}
    assert all(row["id"] == f"{row['partitionId']}-{row['seq']}" for row in rows)


@pytest.mark.parametrize("limit", [1, 3, 5, 1000])
async def test_pages_have_every_message_once_in_order_of_partition_and_seq(
    memory_api: Api, limit: int
) -> None:
    for number in range(11):
        await memory_api.push_payloads("q", number, partition=f"p{number % 3}")
    rows = await listed(memory_api, f"queue=q&limit={limit}")
    places = [(int(row["partitionId"]), row["seq"]) for row in rows]
    assert places == sorted(set(places))
    assert len(places) == 11


async def test_a_status_is_the_view_of_the_group_that_is_named(api: Api) -> None:
    await api.push_payloads("q", 1, 2, 3, 4)
    await api.data("q", "consumerGroup=done&batch=10&autoAck=true")
    await api.pop("q", "consumerGroup=busy&batch=2")

    async def payloads(query: str) -> list[Any]:
        return [row["data"] for row in await listed(api, f"queue=q&{query}")]

    assert await payloads("status=completed&consumerGroup=done") == [1, 2, 3, 4]
    assert await payloads("status=processing&consumerGroup=busy") == [1, 2]
    assert await payloads("status=pending&consumerGroup=busy") == [3, 4]
    assert await payloads("status=pending&consumerGroup=nobody") == [1, 2, 3, 4]
    # Of all groups together: someone works on the first two, and has the others before it.
    assert await payloads("status=processing") == [1, 2]
    assert await payloads("status=pending&limit=1&offset=1") == [4]


async def test_a_queue_mode_group_speaks_for_the_queue(api: Api) -> None:
    await api.push_payloads("q", 1, 2)
    await api.data("q", "batch=1&autoAck=true")
    await api.pop("q", "consumerGroup=other&batch=2")
    rows = await listed(api, "queue=q")
    assert [row["status"] for row in rows] == ["completed", "pending"]
    assert rows[0]["groups"] == {"__QUEUE_MODE__": "done", "other": "leased"}


async def test_messages_are_found_by_partition_and_time(api: Api) -> None:
    await api.push_payloads("q", 1, partition="a")
    api.clock.advance(60)
    await api.push_payloads("q", 2, partition="a")
    await api.push_payloads("q", 3, partition="b")
    [first, second, third] = await listed(api, "queue=q")
    assert [row["data"] for row in await listed(api, "queue=q&partition=b")] == [3]
    later = await listed(api, f"queue=q&from={second['createdAt']}")
    assert [row["data"] for row in later] == [2, 3]
    earlier = await listed(api, f"queue=q&to={first['createdAt']}")
    assert [row["data"] for row in earlier] == [1]
    assert third["partition"] == "b"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "queue"),
        ("queue=q&from=yesterday", "from"),
        ("queue=q&to=2026-01-32", "to"),
        ("queue=q&from=1700000000", "from"),
        ("queue=q&status=lost", "status"),
        ("queue=q&status=null", "status"),
    ],
)
async def test_a_bad_filter_is_refused_and_never_means_everything(
    memory_api: Api, query: str, field: str
) -> None:
    await memory_api.push_payloads("q", 1)
    answer = await memory_api.get(f"/api/v1/messages?{query}")
    assert answer.status == 400
    assert field in answer.error


async def test_a_time_before_everything_is_a_time(memory_api: Api) -> None:
    await memory_api.push_payloads("q", 1)
    for field, found in (("from", 1), ("to", 0)):
        answer = await memory_api.get(f"/api/v1/messages?queue=q&{field}=1969-12-31T23:59:59Z")
        assert len(answer.json["messages"]) == found


async def test_what_does_not_exist_is_not_found(api: Api) -> None:
    await api.push_payloads("q", 1)
    [row] = await listed(api, "queue=q")
    partition = row["partitionId"]
    for method, path in (
        ("GET", "/api/v1/messages?queue=x"),
        ("GET", f"/api/v1/messages/{partition}/nothing"),
        ("GET", "/api/v1/messages/999999/nothing"),
        ("DELETE", f"/api/v1/messages/{partition}/nothing"),
        ("DELETE", "/api/v1/messages/999999/nothing"),
        ("POST", f"/api/v1/messages/{partition}/nothing/retry"),
        ("POST", "/api/v1/messages/999999/nothing/retry"),
        ("GET", "/api/v1/status/queues/x/messages"),
    ):
        answer = await api.request(method, path, None, {})
        assert (answer.status, answer.code) == (404, "not_found"), path
    for bad in ("abc", "0", "-1", "1.5", "9" * 30):
        assert (await api.get(f"/api/v1/messages/{bad}/x")).status == 400


@pytest.mark.parametrize("seq", [3, 2**31, 2**32 + 1, 10**18 - 1])
async def test_an_id_of_a_message_that_never_was_is_not_found_however_far_away(
    api: Api, seq: int
) -> None:
    pushed = await api.push_payloads("q", 1, 2)
    partition = pushed[0]["partition_id"]
    path = f"/api/v1/messages/{partition}/{partition}-{seq}"
    for target in (path, f"{path}/groups", f"{path}/deliveries"):
        answer = await api.get(target)
        assert (answer.status, answer.code) == (404, "not_found"), answer
    answer = await api.request("DELETE", path)
    assert (answer.status, answer.code) == (404, "not_found"), answer
    found = await api.get(f"/api/v1/dashboard/find?queue=q&transactionId={partition}-{seq}")
    assert (found.status, found.json["found"]) == (200, [])
    item = {"queue": "q", "payload": 3, "transactionId": f"{partition}-{seq}"}
    answer = await api.post("/api/v1/push", {"items": [item]})
    assert (answer.status, answer.code) == (400, "invalid_request"), answer
    assert len(await listed(api, "queue=q")) == 2


async def test_a_message_is_described_with_its_state_in_each_group(api: Api) -> None:
    await api.push({"queue": "q", "payload": {"x": 1}, "transactionId": "t", "traceId": "tr"})
    [row] = await listed(api, "queue=q")
    await api.data("q", "consumerGroup=g&autoAck=true")
    for name in ("t", row["id"]):
        one = (await api.get(f"/api/v1/messages/{row['partitionId']}/{name}")).json
        assert one["transactionId"] == "t"
        assert one["data"] == {"x": 1}
        assert one["groups"] == {"g": "done"}
        assert one["status"] == "completed"
        assert one["traceId"] == "tr"
        assert one["queueOptions"]["leaseTime"] == 300


async def test_a_deleted_message_is_never_delivered_and_its_id_stays_taken(api: Api) -> None:
    for transaction_id in ("a", "b"):
        await api.push({"queue": "q", "payload": transaction_id, "transactionId": transaction_id})
    [first, _] = await listed(api, "queue=q")
    path = f"/api/v1/messages/{first['partitionId']}/a"
    answer = await api.request("DELETE", path, None, {})
    assert answer.json["deleted"] == 1
    assert [row["data"] for row in await listed(api, "queue=q")] == ["b"]
    assert (await api.request("DELETE", path, None, {})).status == 404
    [again] = await api.push({"queue": "q", "payload": 1, "transactionId": "a"})
    assert again["status"] == "duplicate"
    assert await api.data("q") == ["b"]


async def test_a_leased_message_is_not_deleted(api: Api) -> None:
    await api.push_payloads("q", 1)
    await api.pop("q")
    [row] = await listed(api, "queue=q")
    path = f"/api/v1/messages/{row['partitionId']}/{row['transactionId']}"
    answer = await api.request("DELETE", path, None, {})
    assert (answer.status, answer.code) == (409, "conflict")


async def bury(api: Api, queue: str, group: str = "__QUEUE_MODE__") -> dict[str, Any]:
    """Let the first message of a queue die."""
    popped = await api.pop(queue, f"batch=1&consumerGroup={group}")
    [message] = popped["messages"]
    answer = await api.post(
        "/api/v1/ack",
        {
            "transactionId": message["transactionId"],
            "partitionId": message["partitionId"],
            "leaseId": message["leaseId"],
            "consumerGroup": group,
            "status": "dead",
            "error": "no good",
        },
    )
    assert answer.json["success"] is True, answer
    return dict(message)


async def test_a_dead_message_is_retried_for_the_group_that_failed_on_it(api: Api) -> None:
    await api.push({"queue": "q", "payload": "bad", "transactionId": "t"})
    message = await bury(api, "q", "g")
    rows = await listed(api, "queue=q&status=dead_letter")
    assert [row["transactionId"] for row in rows] == ["t"]
    path = f"/api/v1/messages/{message['partitionId']}/t/retry"
    answer = await api.post(path)
    assert answer.json["redriven"] == 1
    assert await api.data("q", "consumerGroup=g&autoAck=true") == ["bad"]
    assert (await api.post(path)).status == 404
    assert await listed(api, "queue=q&status=dead_letter") == []


async def test_items_are_listed_as_messages_with_their_state(api: Api) -> None:
    await api.configure("w", "work", maxAttempts=1)
    await api.push_payloads("w", "dies", "leased", "ready")
    await api.push({"queue": "w", "payload": "later", "delaySeconds": 60})
    await bury(api, "w")
    await api.pop("w", "batch=1")
    rows = {row["data"]: row["status"] for row in await listed(api, "queue=w")}
    assert rows == {
        "dies": "dead_letter",
        "leased": "processing",
        "ready": "pending",
        "later": "scheduled",
    }
    for payload, status in rows.items():
        [row] = await listed(api, f"queue=w&status={status}")
        assert row["data"] == payload
        one = (await api.get(f"/api/v1/messages/{row['partitionId']}/{row['id']}")).json
        assert (one["data"], one["status"]) == (payload, status)


async def test_the_status_page_of_a_queue_lists_the_same(api: Api) -> None:
    await api.push_payloads("q", 1, 2, 3)
    answer = (await api.get("/api/v1/status/queues/q/messages?limit=2")).json
    assert [row["data"] for row in answer["messages"]] == [1, 2]
    assert answer["next"] is not None


async def test_a_page_of_large_messages_is_cut_by_bytes_and_goes_on(
    memory_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monarq.store.collecting.MAX_BYTES", 100_000)
    payloads = ["x" * 30_000 + str(number) for number in range(20)]
    await memory_api.push_payloads("q", *payloads)
    first = (await memory_api.get("/api/v1/messages?queue=q")).json
    assert len(first["messages"]) < 20
    assert first["next"] is not None
    rows = await listed(memory_api, "queue=q")
    assert [row["data"] for row in rows] == payloads


async def test_headers_are_told_wherever_a_message_is_listed(api: Api) -> None:
    await api.configure("w", "work")
    for queue in ("q", "w"):
        await api.push({"queue": queue, "payload": 1, "headers": {"a": "b"}})
        await api.push({"queue": queue, "payload": 2})
        [with_headers, without] = await listed(api, f"queue={queue}")
        assert with_headers["headers"] == {"a": "b"}
        assert "headers" not in without
        path = f"/api/v1/messages/{with_headers['partitionId']}/{with_headers['id']}"
        assert (await api.get(path)).json["headers"] == {"a": "b"}
        await bury(api, queue)
        [letter] = (await api.get(f"/api/v1/dlq?queue={queue}")).json["messages"]
        assert letter["headers"] == {"a": "b"}
    [item, _] = (await api.get("/api/v1/items?queue=w")).json["items"]
    assert item["headers"] == {"a": "b"}
