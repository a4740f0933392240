"""Pushes of columns over the API: thousands of messages for one partition."""

import json
from typing import Any

import pytest

from monarq.operations.operation import Role
from monarq.server.exchange import Principal
from tests.server.application import JSON_TYPE, Api, dumps

PUSH = "/api/v1/push/columns"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def rows(api: Api, queue: str = "q") -> list[tuple[str, Any, str]]:
    found = (await api.get(f"/api/v1/messages?queue={queue}")).json["messages"]
    return [(row["partition"], row["data"], row["transactionId"]) for row in found]


async def test_the_answer_counts_what_was_queued_and_what_was_there(api: Api) -> None:
    body = {"queue": "q", "partition": "p", "payloads": [1, {"a": [2]}]}
    body["transactionIds"] = ["a", "b"]
    first = await api.post(PUSH, body)
    assert (first.status, first.json) == (201, {"queued": 2, "duplicate": 0, "buffered": 0})
    again = await api.post(PUSH, {**body, "payloads": [3, 4], "transactionIds": ["b", "c"]})
    assert again.json == {"queued": 1, "duplicate": 1, "buffered": 0}
    assert await rows(api) == [("p", 1, "a"), ("p", {"a": [2]}, "b"), ("p", 4, "c")]


async def test_partition_and_ids_may_be_left_out(api: Api) -> None:
    answer = await api.post(PUSH, {"queue": "q", "payloads": [1, 2]})
    assert answer.json == {"queued": 2, "duplicate": 0, "buffered": 0}
    assert [row[:2] for row in await rows(api)] == [("Default", 1), ("Default", 2)]
    nothing = await api.post(PUSH, {"queue": "none", "payloads": []})
    assert (nothing.status, nothing.json["queued"]) == (201, 0)
    assert (await api.get("/api/v1/resources/queues/none")).status == 404


async def test_payloads_are_kept_byte_for_byte(api: Api) -> None:
    texts = [b"null", b'{ "a" : [ 1 ,\t2\n] }', b"1e999999", '"ü\U0001f600"'.encode(), b"[[]]"]
    await api.post(PUSH, b'{"queue":"q","payloads":[ ' + b" , ".join(texts) + b" ]}")
    answer = await api.get("/api/v1/pop/queue/q?batch=10")
    for text in texts:
        assert text in answer.body


async def test_the_caller_and_its_trace_are_kept_with_each_message(api: Api) -> None:
    api.principal = Principal("somebody", Role.ADMIN)
    body = {"queue": "q", "payloads": [1, 2]}
    await api.post(PUSH, body, {**JSON_TYPE, "traceparent": TRACEPARENT})
    messages = (await api.get("/api/v1/pop/queue/q?batch=10")).json["messages"]
    assert [message["headers"] for message in messages] == [{"traceparent": TRACEPARENT}] * 2
    assert [message["producerSub"] for message in messages] == ["somebody"] * 2


async def test_a_push_after_another_is_stored_only_if_that_one_is(api: Api) -> None:
    def numbered(number: int, **links: str) -> dict[str, Any]:
        return {"queue": "q", "payloads": [number], **links}

    early = await api.post(PUSH, numbered(2, mark="b", after="a"))
    assert (early.status, early.json["code"]) == (409, "conflict")
    assert (await api.post(PUSH, numbered(1, mark="a"))).status == 201
    assert (await api.post(PUSH, numbered(2, mark="b", after="a"))).status == 201
    again = await api.post(PUSH, numbered(2, mark="b", after="a"))
    assert (again.status, again.json["code"]) == (409, "already_pushed")
    assert await api.data("q") == [1, 2]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"queue": None}, "queue"),
        ({"queue": "a\u009bb"}, "queue"),
        ({"queue": "a\u009bb", "payloads": []}, "queue"),
        ({"partition": "a\nb"}, "partition"),
        ({"partition": "a\nb", "payloads": [], "transactionIds": None}, "partition"),
        ({"payloads": []}, "transactionIds"),
        ({"partition": ""}, "partition"),
        ({"payloads": None}, "payloads"),
        ({"payloads": {"a": 1}}, "payloads"),
        ({"payloads": [1] * 10_001, "transactionIds": None}, "payloads"),
        ({"transactionIds": ["a"]}, "transactionIds"),
        ({"transactionIds": ["a", "b", "c"]}, "transactionIds"),
        ({"transactionIds": []}, "transactionIds"),
        ({"transactionIds": ["a", None]}, "transactionIds[1]"),
        ({"transactionIds": ["a", ""]}, "transactionIds[1]"),
        ({"transactionIds": ["a", "b\n"]}, "transactionId"),
        ({"mark": "a b"}, "mark"),
        ({"after": "x" * 49}, "after"),
        ({"items": []}, "items"),
        ({"answer": "counts"}, "answer"),
    ],
)
async def test_what_is_wrong_is_named_and_nothing_is_stored(
    api: Api, change: dict[str, Any], wrong: str
) -> None:
    good = {"queue": "q", "partition": "p", "payloads": [1, 2], "transactionIds": ["a", "b"]}
    answer = await api.post(PUSH, good | change)
    assert (answer.status, answer.json["code"]) == (400, "invalid_request")
    assert wrong in answer.json["error"]
    assert await api.data("q") == []


@pytest.mark.parametrize("text", [b"1,", b"1 2", b"[1", b"'a'", b"1]", b'"\xff"', b'"\n"', b"nul"])
async def test_a_payload_that_is_not_json_is_refused(api: Api, text: bytes) -> None:
    body = b'{"queue":"q","payloads":[0,' + text + b'],"transactionIds":["a","b"]}'
    assert (await api.post(PUSH, body)).status == 400
    assert await api.data("q") == []


async def test_more_than_2_mib_are_refused_before_anything_is_made_of_them(api: Api) -> None:
    body = dumps({"queue": "q", "payloads": ["x" * (2 << 20)]})
    assert (await api.post(PUSH, body)).status == 413
    body = b'{"queue":"q","payloads":[' + b"0," * (2 << 20) + b"0]}"
    assert (await api.post(PUSH, body)).status == 413
    fitting = json.dumps({"queue": "q", "payloads": ["x" * ((2 << 20) - 100)]}).encode()
    assert (await api.post(PUSH, fitting)).status == 201
