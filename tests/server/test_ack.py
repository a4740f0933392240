"""Ack over the API, one by one and in batches: each is judged alone."""

from typing import Any

import pytest

from tests.server.application import Api

ACK = "/api/v1/ack"
BATCH = "/api/v1/ack/batch"


def ack_of(message: Any, status: str | None = "completed", **more: Any) -> dict[str, Any]:
    return {
        "transactionId": message["transactionId"],
        "partitionId": message["partitionId"],
        "leaseId": message["leaseId"],
        "status": status,
        **more,
    }


async def popped(api: Api, *payloads: Any, query: str = "batch=100") -> list[Any]:
    await api.push_payloads("q", *payloads)
    messages: list[Any] = (await api.pop("q", query))["messages"]
    return messages


async def test_the_answer_says_what_was_acked_and_whether_the_lease_ended(api: Api) -> None:
    first, second = await popped(api, 1, 2)
    answer = await api.post(ACK, ack_of(first))
    assert answer.status == 200
    assert answer.json == {
        "success": True,
        "transactionId": first["transactionId"],
        "error": None,
        "queueName": "q",
        "partitionName": "Default",
        "leaseReleased": False,
        "dlq": False,
    }
    assert (await api.post(ACK, ack_of(second))).json["leaseReleased"] is True
    assert await api.pop("q") is None


@pytest.mark.parametrize(
    ("status", "again", "dead"),
    [
        ("completed", False, False),
        ("success", False, False),
        (None, False, False),
        ("dead", False, True),
        ("dlq", False, True),
        ("release", True, False),
        ("failed", True, False),
        ("retry", True, False),
    ],
)
async def test_each_status_does_what_it_says(
    memory_api: Api, status: str | None, again: bool, dead: bool
) -> None:
    await memory_api.configure("q", retryDelay=0)
    (message,) = await popped(memory_api, "x")
    answer = await memory_api.post(ACK, ack_of(message, status, error="why"))
    assert (answer.status, answer.json["dlq"]) == (200, dead)
    redelivered = await memory_api.pop("q")
    assert (redelivered is not None) is again
    if redelivered is not None:
        counted = 1 if status == "release" else 2
        assert redelivered["messages"][0]["attempts"] == counted


async def test_a_failed_message_comes_again_after_its_retry_time(api: Api) -> None:
    (message,) = await popped(api, "x")
    retry_at = "2023-11-14T22:13:50Z"
    await api.post(ACK, ack_of(message, "failed", retryAt=retry_at))
    api.clock.advance(29.9)
    assert await api.pop("q") is None
    api.clock.advance(0.2)
    assert await api.pop_soon("q") is not None


async def test_a_partition_id_may_be_text_or_a_number(api: Api) -> None:
    first, second = await popped(api, 1, 2)
    assert (await api.post(ACK, ack_of(first))).status == 200
    number = int(second["partitionId"])
    assert (await api.post(ACK, {**ack_of(second), "partitionId": number})).status == 200


async def test_the_message_id_is_good_in_place_of_the_transaction_id(api: Api) -> None:
    await api.push({"queue": "q", "payload": 1, "transactionId": "mine"})
    (message,) = (await api.pop("q"))["messages"]
    answer = await api.post(ACK, {**ack_of(message), "transactionId": message["id"]})
    assert answer.json["success"] is True


async def test_an_ack_without_a_lease_id_needs_a_live_lease_of_that_group(api: Api) -> None:
    (message,) = await popped(api, 1, query="consumerGroup=g&leaseTime=5")
    without = {**ack_of(message), "leaseId": None, "consumerGroup": "other"}
    refused = await api.post(ACK, without)
    assert (refused.status, refused.code) == (409, "lease_expired")
    assert (await api.post(ACK, {**without, "consumerGroup": "g"})).json["success"] is True
    (message,) = await popped(api, 2, query="consumerGroup=g&leaseTime=5")
    api.clock.advance(6)
    late = {**ack_of(message), "leaseId": None, "consumerGroup": "g"}
    assert (await api.post(ACK, late)).code == "lease_expired"


async def test_a_refused_ack_says_so_in_status_and_body(api: Api) -> None:
    (message,) = await popped(api, 1, query="leaseTime=5")
    api.clock.advance(6)
    answer = await api.post(ACK, ack_of(message))
    assert answer.status == 409
    assert answer.json == {
        "success": False,
        "transactionId": message["transactionId"],
        "error": answer.error,
        "queueName": None,
        "partitionName": None,
        "leaseReleased": False,
        "dlq": False,
        "code": "lease_expired",
    }
    assert (await api.pop_soon("q"))["messages"][0]["data"] == 1


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"leaseId": "999-00112233445566aa"}, 409, "lease_unknown"),
        ({"leaseId": "nonsense"}, 409, "lease_unknown"),
        ({"partitionId": "999"}, 404, "not_found"),
        ({"partitionId": "0"}, 404, "not_found"),
        ({"partitionId": -5}, 404, "not_found"),
        ({"partitionId": "0198c9de-6f5a-7bbb-8000-000000000000"}, 404, "not_found"),
        ({"partitionId": "9" * 400}, 404, "not_found"),
        ({"partitionId": 10**400}, 404, "not_found"),
        ({"partitionId": "٣"}, 404, "not_found"),
        ({"transactionId": "no such"}, 404, "not_found"),
        ({"transactionId": None}, 400, "invalid_request"),
        ({"partitionId": None}, 400, "invalid_request"),
        ({"partitionId": 1.5}, 400, "invalid_request"),
        ({"transactionId": None, "partitionId": None, "leaseId": None}, 400, "invalid_request"),
        ({"status": "done"}, 400, "invalid_request"),
        ({"status": 1}, 400, "invalid_request"),
        ({"retryAt": "tomorrow", "status": "failed"}, 400, "invalid_request"),
        ({"retryAt": "2026-01-01T00:00:00Z"}, 400, "invalid_request"),
        ({"error": "\u0000"}, 400, "invalid_request"),
        ({"error": "x" * 70_000}, 400, "invalid_request"),
        ({"consumerGroup": ""}, 400, "invalid_request"),
        ({"consumerGroup": "another"}, 409, "lease_foreign"),
        ({"leaseID": "x"}, 400, "invalid_request"),
    ],
)
async def test_a_bad_ack_is_refused_and_changes_nothing(
    memory_api: Api, change: dict[str, Any], status: int, code: str
) -> None:
    (message,) = await popped(memory_api, 1)
    answer = await memory_api.post(ACK, {**ack_of(message), **change})
    assert (answer.status, answer.code) == (status, code), answer
    assert (await memory_api.post(ACK, ack_of(message))).json["success"] is True


async def test_acking_twice_is_refused_the_second_time(api: Api) -> None:
    first, _ = await popped(api, 1, 2)
    assert (await api.post(ACK, ack_of(first))).status == 200
    again = await api.post(ACK, ack_of(first))
    assert (again.status, again.code) == (409, "already_acked")


# --- many ------------------------------------------------------------------------------


async def test_a_batch_is_answered_in_order(api: Api) -> None:
    messages = await popped(api, *range(50))
    turned = messages[::-1]
    answer = await api.post(BATCH, {"acknowledgments": [ack_of(message) for message in turned]})
    assert answer.status == 200
    assert [one["transactionId"] for one in answer.json] == [m["transactionId"] for m in turned]
    assert [one["success"] for one in answer.json] == [True] * 50
    assert [one["leaseReleased"] for one in answer.json].count(True) == 1
    assert await api.pop("q") is None


async def test_one_bad_ack_spoils_only_itself(api: Api) -> None:
    messages = await popped(api, *range(12))
    acks: list[Any] = [ack_of(message) for message in messages]
    acks[1]["status"] = "bogus"
    acks[2] = "not an ack"
    acks[3]["partitionId"] = "nowhere"
    acks[4]["leaseId"] = "5-0011223344556677"
    acks[5]["transactionId"] = None
    acks[6]["unknown"] = 1
    acks[7]["retryAt"] = "never"
    acks[8]["transactionId"] = "\u0000"
    acks[9] = None
    acks[10]["error"] = 5
    answer = await api.post(BATCH, {"acknowledgments": acks, "consumerGroup": None})
    assert answer.status == 200
    assert [one["success"] for one in answer.json] == [True] + [False] * 10 + [True]
    assert all(one["error"] and one["code"] for one in answer.json[1:11])
    assert "status" in answer.json[1]["error"]
    rest = [ack_of(message) for message in messages[1:11]]
    answer = await api.post(BATCH, {"acknowledgments": rest})
    assert [one["success"] for one in answer.json] == [True] * 10
    assert await api.pop("q") is None


async def test_completed_failed_completed_retries_the_one_that_failed(api: Api) -> None:
    await api.configure("q", retryDelay=0)
    messages = await popped(api, 0, 1, 2)
    statuses = ["completed", "failed", "completed"]
    acks = [ack_of(m, status) for m, status in zip(messages, statuses, strict=True)]
    await api.post(BATCH, {"acknowledgments": acks})
    again = (await api.pop("q"))["messages"]
    assert [message["data"] for message in again] == [1]


async def test_the_group_on_top_is_for_those_that_name_none(api: Api) -> None:
    first, second, third = await popped(api, 1, 2, 3, query="batch=9&consumerGroup=g")
    acks = [
        ack_of(first),
        ack_of(second, consumerGroup=None),
        ack_of(third, consumerGroup="other"),
    ]
    answer = await api.post(BATCH, {"acknowledgments": acks, "consumerGroup": "g"})
    assert [one["success"] for one in answer.json] == [True, True, False]


@pytest.mark.parametrize("path", [ACK, BATCH])
async def test_a_whole_lease_is_acked_by_its_id(api: Api, path: str) -> None:
    for name in "ab":
        await api.push_payloads("q", 1, 2, partition=name)
    messages = (await api.pop("q", "batch=9&partitions=2&consumerGroup=g"))["messages"]
    await api.post(ACK, ack_of(messages[0], consumerGroup="g"))
    lease = messages[0]["leaseId"]
    answer = await api.post(path, {"leaseId": lease, "status": "completed", "consumerGroup": "g"})
    assert answer.status == 200
    result = answer.json if path == ACK else answer.json[0]
    assert (result["success"], result["count"], result["leaseReleased"]) == (True, 3, True)
    assert result["transactionId"] is None
    assert await api.pop("q", "consumerGroup=g") is None
    again = await api.post(BATCH, {"leaseId": lease, "status": "completed", "consumerGroup": "g"})
    assert again.json[0]["success"] is False


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"status": "completed"},
        {"acknowledgments": 5},
        {"acknowledgments": [], "leaseId": "1-0011223344556677"},
        {"acknowledgments": [], "status": "completed"},
        {"acknowledgments": [{}] * 10_001},
        {"acknowledgments": ["bad"], "consumerGroup": 5},
        {"acknowledgments": ["bad"], "unknown": 5},
        {"leaseId": 5, "status": "completed"},
        {"leaseId": "1-0011223344556677", "status": "bogus"},
        [],
    ],
)
async def test_a_malformed_batch_is_refused_whole(memory_api: Api, body: Any) -> None:
    answer = await memory_api.post(BATCH, body)
    assert (answer.status, answer.code) == (400, "invalid_request")


async def test_a_batch_of_none_answers_none(memory_api: Api) -> None:
    answer = await memory_api.post(BATCH, {"acknowledgments": []})
    assert (answer.status, answer.json) == (200, [])


async def test_truncated_json_in_a_batch_is_no_single_bad_ack(memory_api: Api) -> None:
    answer = await memory_api.post(BATCH, b'{"acknowledgments":[{"transactionId":"a"},{"tr')
    assert (answer.status, answer.code) == (400, "invalid_request")


async def test_an_items_result_is_kept_with_its_attempt(api: Api) -> None:
    await api.configure("jobs", "work")
    await api.push({"queue": "jobs", "payload": 1})
    (message,) = (await api.pop("jobs"))["messages"]
    again = {**ack_of(message, "retry"), "result": None}
    assert (await api.post(ACK, again)).status == 200
    (message,) = (await api.pop_soon("jobs"))["messages"]
    assert (await api.post(ACK, ack_of(message, result={"exit": 0}))).status == 200
    attempts = (await api.broker.store.get_item(message["id"])).history
    assert [attempt.result for attempt in attempts] == [None, b'{"exit":0}']
