"""Transactions over the API: all of it or nothing."""

from typing import Any

import pytest

from tests.server.application import Api

TRANSACTION = "/api/v1/transaction"


def push_of(queue: str, *payloads: Any) -> dict[str, Any]:
    return {"type": "push", "items": [{"queue": queue, "payload": p} for p in payloads]}


def ack_of(message: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": "ack",
        "transactionId": message["transactionId"],
        "partitionId": message["partitionId"],
        "leaseId": message["leaseId"],
        "status": "completed",
        **more,
    }


async def one_popped(api: Api, query: str = "") -> Any:
    await api.push_payloads("in", "work")
    return (await api.pop("in", query))["messages"][0]


async def test_pushes_and_acks_are_carried_out_together(api: Api) -> None:
    message = await one_popped(api)
    answer = await api.post(
        TRANSACTION,
        {
            "operations": [push_of("out", 1, 2), ack_of(message), push_of("log", 3)],
            "requiredLeases": [message["leaseId"]],
        },
    )
    assert answer.status == 200
    assert answer.json["success"] is True
    assert answer.json["transactionId"]
    pushed, acked, logged = answer.json["results"]
    assert [item["seq"] for item in pushed["items"]] == [1, 2]
    assert (acked["type"], acked["success"], acked["leaseReleased"]) == ("ack", True, True)
    assert [one["index"] for one in (pushed, acked, logged)] == [0, 1, 2]
    assert await api.data("out") == [1, 2]
    assert await api.data("log") == [3]
    assert await api.pop("in") is None


async def test_a_failure_says_which_operation_and_why_and_nothing_is_done(api: Api) -> None:
    message = await one_popped(api, "leaseTime=5")
    api.clock.advance(6)
    answer = await api.post(TRANSACTION, {"operations": [push_of("out", 1), ack_of(message)]})
    assert answer.status == 409
    assert answer.json == {
        "success": False,
        "error": answer.error,
        "code": "transaction_failed",
        "operation": 1,
        "cause": "lease_expired",
    }
    assert await api.pop("out") is None
    assert await api.pop_soon("in") is not None


async def test_a_stale_consumers_transaction_fails_after_its_partition_was_leased_again(
    api: Api,
) -> None:
    stale = await one_popped(api, "leaseTime=5")
    api.clock.advance(6)
    fresh = (await api.pop_soon("in"))["messages"][0]
    answer = await api.post(TRANSACTION, {"operations": [ack_of(stale), push_of("out", "stale")]})
    assert (answer.status, answer.json["success"]) == (409, False)
    answer = await api.post(TRANSACTION, {"operations": [ack_of(fresh), push_of("out", "fresh")]})
    assert answer.json["success"] is True
    assert await api.data("out") == ["fresh"]


async def test_every_required_lease_must_be_live(api: Api) -> None:
    message = await one_popped(api, "leaseTime=5")
    body = {"operations": [push_of("out", 1)], "requiredLeases": [message["leaseId"]]}
    assert (await api.post(TRANSACTION, body)).status == 200
    api.clock.advance(6)
    refused = await api.post(TRANSACTION, body)
    assert (refused.status, refused.json["operation"]) == (409, None)
    assert await api.data("out") == [1]


async def test_an_ack_without_a_lease_id_is_judged_by_the_live_lease_of_its_group(
    api: Api,
) -> None:
    message = await one_popped(api, "consumerGroup=g&leaseTime=5")
    operation = ack_of(message, leaseId=None, consumerGroup="g")
    assert (await api.post(TRANSACTION, {"operations": [operation]})).status == 200
    message = await one_popped(api, "consumerGroup=g&leaseTime=5")
    api.clock.advance(6)
    operation = ack_of(message, leaseId=None, consumerGroup="g")
    refused = await api.post(TRANSACTION, {"operations": [operation]})
    assert (refused.status, refused.json["cause"]) == (409, "lease_expired")


async def test_a_full_queue_fails_the_transaction_with_429(api: Api) -> None:
    await api.configure("out", maxSize=1)
    message = await one_popped(api)
    answer = await api.post(TRANSACTION, {"operations": [ack_of(message), push_of("out", 1, 2)]})
    assert (answer.status, answer.json["cause"], answer.json["operation"]) == (429, "queue_full", 1)
    assert answer.headers["Retry-After"] == "1"
    assert (await api.post("/api/v1/ack", {**ack_of(message), "type": None})).status == 400
    one = ack_of(message)
    del one["type"]
    assert (await api.post("/api/v1/ack", one)).json["success"] is True


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"operations": []},
        {"operations": [{}]},
        {"operations": [{"type": "pop"}]},
        {"operations": [{"type": "push", "items": []}]},
        {"operations": [{"type": "push", "items": [{"queue": "out"}]}]},
        {"operations": [{"type": "ack", "items": []}]},
        {"operations": [push_of("out", 1)], "kv": []},
        {"operations": [push_of("out", 1)], "timers": []},
        {"operations": [push_of("out", 1)], "requiredLeases": [5]},
        {"operations": [push_of("out", 1)], "requiredLeases": ["\u0000"]},
        {"operations": [push_of("out", 1), push_of("out\u0007", 1)]},
        {"operations": [push_of("out", 1), {"type": "ack", "status": "completed"}]},
        {"operations": push_of("out", 1)},
        [],
    ],
)
async def test_what_is_malformed_is_refused_and_nothing_is_done(memory_api: Api, body: Any) -> None:
    answer = await memory_api.post(TRANSACTION, body)
    assert answer.status == 400, answer
    assert answer.error
    assert await memory_api.pop("out") is None


async def test_an_unknown_partition_fails_the_transaction(api: Api) -> None:
    message = await one_popped(api)
    bad = {**ack_of(message), "partitionId": "nowhere"}
    answer = await api.post(TRANSACTION, {"operations": [push_of("out", 1), bad]})
    assert (answer.status, answer.json["operation"]) == (409, 1)
    assert answer.json["cause"] == "not_found"
    assert await api.pop("out") is None
