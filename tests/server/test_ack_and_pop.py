"""Acks and the next pop in one request: both answers in one, and each ack judged alone."""

from typing import Any

import pytest

from monarq.operations.operation import Role
from monarq.server.exchange import Pending, Principal
from tests.server.application import Api

POP = "/api/v1/pop/queue/q"


def ack_of(message: Any, **more: Any) -> dict[str, Any]:
    fields = ("transactionId", "partitionId", "leaseId")
    return {**{field: message[field] for field in fields}, **more}


async def first_of(api: Api, *payloads: Any, query: str = "") -> Any:
    await api.push_payloads("q", *payloads)
    return await api.pop("q", query)


async def test_the_answer_is_that_of_a_pop_with_what_became_of_the_acks(api: Api) -> None:
    popped = await first_of(api, 1, 2, query="consumerGroup=g")
    acks = {"acknowledgments": [ack_of(m, consumerGroup="g") for m in popped["messages"]]}
    answer = await api.post(f"{POP}?consumerGroup=g&batch=5", acks)
    assert answer.status == 200
    got = answer.json
    lease = got.pop("leaseId")
    assert lease != popped["leaseId"]
    [message] = got.pop("messages")
    assert (message["data"], message["leaseId"], message["attempts"]) == (2, lease, 1)
    assert got == {
        "acknowledged": [
            {
                "success": True,
                "transactionId": popped["messages"][0]["transactionId"],
                "error": None,
                "queueName": "q",
                "partitionName": "Default",
                "leaseReleased": True,
                "dlq": False,
            }
        ],
        "success": True,
        "queue": "q",
        "partition": "Default",
        "partitionId": message["partitionId"],
        "consumerGroup": "g",
    }


async def test_a_whole_lease_and_then_nothing_more_is_200_with_no_messages(api: Api) -> None:
    popped = await first_of(api, 1)
    answer = await api.post(POP, {"leaseId": popped["leaseId"], "status": "completed"})
    assert answer.status == 200
    assert answer.json["acknowledged"][0]["count"] == 1
    assert {name: value for name, value in answer.json.items() if name != "acknowledged"} == {
        "success": True,
        "queue": None,
        "partition": None,
        "partitionId": None,
        "leaseId": None,
        "consumerGroup": "__QUEUE_MODE__",
        "messages": [],
    }


async def test_the_group_of_the_query_is_that_of_acks_that_name_none(api: Api) -> None:
    for body_group in ({}, {"consumerGroup": "g"}):
        popped = await first_of(api, 1, query="consumerGroup=g")
        acks = {"acknowledgments": [ack_of(m) for m in popped["messages"]], **body_group}
        answer = await api.post(f"{POP}?consumerGroup=g", acks)
        assert [one["success"] for one in answer.json["acknowledged"]] == [True]


async def test_one_bad_ack_spoils_only_itself_and_answers_keep_their_order(api: Api) -> None:
    popped = await first_of(api, 1, 2, 3, query="batch=2")
    first, second = popped["messages"]
    acks = [
        ack_of(second),
        {"status": "nonsense"},
        ack_of(first, leaseId="99999-0123456789abcdef"),
        ack_of(first, partitionId="no number"),
        ack_of(first),
    ]
    answer = await api.post(POP, {"acknowledgments": acks})
    assert answer.status == 200
    told = answer.json["acknowledged"]
    codes = [one.get("code") for one in told]
    assert codes == [None, "invalid_request", "lease_unknown", "not_found", None]
    assert [message["data"] for message in answer.json["messages"]] == [3]


async def test_one_partition_or_a_label_can_be_asked_for(api: Api) -> None:
    configured = await api.post("/api/v1/configure", {"queue": "q", "namespace": "shop"})
    assert configured.status == 200
    for partition in ("a", "b", "c"):
        await api.push_payloads("q", f"{partition}1", f"{partition}2", partition=partition)
    popped = (await api.get(f"{POP}/partition/b")).json
    answer = await api.post(f"{POP}/partition/b", {"leaseId": popped["leaseId"]})
    assert [message["data"] for message in answer.json["messages"]] == ["b2"]
    answer = await api.post("/api/v1/pop?namespace=shop", {"leaseId": answer.json["leaseId"]})
    assert [message["data"] for message in answer.json["messages"]] == ["a1"]


async def test_a_request_that_would_wait_is_refused_and_nothing_is_acked(api: Api) -> None:
    popped = await first_of(api, 1, 2)
    body = {"leaseId": popped["leaseId"]}
    refused = await api.post(f"{POP}?wait=true&timeout=1000", body)
    assert (refused.status, refused.code) == (400, "invalid_request")
    assert "wait" in refused.error
    again = await api.post(POP, body)
    assert again.json["acknowledged"][0]["success"] is True


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("batch=0", {"acknowledgments": []}),
        ("conflation=true", {"acknowledgments": []}),
        ("", {}),
        ("", {"acknowledgments": [], "leaseId": "1-0123456789abcdef"}),
        ("", {"acknowledgements": []}),
        ("", b"[]"),
    ],
)
async def test_what_makes_no_sense_is_refused(memory_api: Api, query: str, body: Any) -> None:
    refused = await memory_api.post(f"{POP}?{query}", body)
    assert (refused.status, refused.code) == (400, "invalid_request")


async def test_without_acks_it_is_a_pop(memory_api: Api) -> None:
    await memory_api.push_payloads("q", 1)
    answer = await memory_api.post(POP, {"acknowledgments": []})
    assert answer.json["acknowledged"] == []
    assert [message["data"] for message in answer.json["messages"]] == [1]


async def test_a_pop_that_is_refused_says_so_with_the_answers_to_the_acks(api: Api) -> None:
    await api.configure("jobs", kind="work")
    popped = await first_of(api, 1)
    target = "/api/v1/pop/queue/jobs?consumerGroup=g"
    refused = await api.post(target, {"leaseId": popped["leaseId"]})
    assert (refused.status, refused.code) == (400, "invalid_request")
    assert "work queue" in refused.error
    assert [one["success"] for one in refused.json["acknowledged"]] == [True]
    assert await api.pop("q") is None


async def test_what_could_not_be_written_to_the_client_is_given_back_and_the_acks_stay(
    api: Api,
) -> None:
    popped = await first_of(api, 1, 2)
    pending = api.handle("POST", POP, {"leaseId": popped["leaseId"]})
    assert isinstance(pending, Pending)
    result = await pending.future
    assert pending.undelivered is not None
    pending.undelivered(result)
    again = await api.pop("q", "wait=true&timeout=20000")
    assert [(m["data"], m["attempts"]) for m in again["messages"]] == [(2, 1)]


async def test_it_needs_the_role_of_acks_and_pops(memory_api: Api) -> None:
    memory_api.principal = Principal("reader", Role.READ)
    assert (await memory_api.post(POP, {"acknowledgments": []})).status == 403
    memory_api.principal = Principal("writer", Role.WRITE)
    assert (await memory_api.post(POP, {"acknowledgments": []})).status == 200


async def test_a_broker_that_drains_answers_503(memory_api: Api) -> None:
    memory_api.broker.drain()
    refused = await memory_api.post(POP, {"acknowledgments": []})
    assert (refused.status, refused.code) == (503, "draining")
