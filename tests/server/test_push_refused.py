"""Pushes that are no JSON or malformed: refused with the field's name, and nothing is stored."""

from typing import Any

import pytest

from tests.server.application import Api

PUSH = "/api/v1/push"


async def test_an_item_without_a_queue_that_the_body_does_not_name_is_refused(api: Api) -> None:
    items = [{"queue": "q", "payload": 1}, {"payload": 2}]
    answer = await api.post(PUSH, {"items": items, "partition": "p"})
    assert answer.status == 400
    assert "items[1].queue" in answer.json["error"]
    assert await api.data("q") == []


@pytest.mark.parametrize("field", ["mark", "after"])
@pytest.mark.parametrize("text", ["", "a b", "a\n", "ü", "x" * 49, 7])
async def test_a_malformed_mark_is_refused_with_its_name(api: Api, field: str, text: Any) -> None:
    for items in ([{"queue": "q", "payload": 1}], []):
        answer = await api.post(PUSH, {"items": items, field: text})
        assert answer.status == 400
        assert answer.json["error"].startswith(f"{field} must be ")
    assert await api.data("q") == []


BAD_PAYLOADS = [
    b"",
    b"tru",
    b"NaN",
    b"-Infinity",
    b"01",
    b"1.",
    b".5",
    b"+1",
    b"1e",
    b"'a'",
    b"[1,]",
    b'{"a":1,}',
    b'{"a"}',
    b"{1:2}",
    b"1 2",
    b"/**/1",
    b'"',
    b'"a\nb"',
    b'"\x00"',
    b'"\\x"',
    b'"\\u12"',
    b'"\\ud800"',
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b'"\xc0\xaf"',
    b"\xef\xbb\xbf1",
    b"[" * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
]


@pytest.mark.parametrize("payload", BAD_PAYLOADS, ids=lambda payload: repr(payload[:24]))
async def test_what_is_no_json_is_refused_and_nothing_is_stored(
    memory_api: Api, payload: bytes
) -> None:
    body = b'{"items":[{"queue":"q","payload":1},{"queue":"q","payload":%b}]}' % payload
    answer = await memory_api.post(PUSH, body)
    assert (answer.status, answer.code) == (400, "invalid_request"), answer
    assert await memory_api.pop("q") is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "items"),
        ({"items": None}, "items"),
        ({"items": {}}, "items"),
        ({"items": [1]}, "items[0]"),
        ({"items": [{"payload": 1}]}, "queue"),
        ({"items": [{"queue": "q"}]}, "payload"),
        ({"items": [{"queue": 5, "payload": 1}]}, "items[0].queue"),
        ({"items": [{"queue": "", "payload": 1}]}, "items[0].queue"),
        ({"items": [{"queue": "x" * 256, "payload": 1}]}, "items[0].queue"),
        ({"items": [{"queue": "a\nb", "payload": 1}]}, "queue"),
        ({"items": [{"queue": "a\u0085b", "payload": 1}]}, "queue"),
        ({"items": [{"queue": "q", "partition": "\u0000", "payload": 1}]}, "partition"),
        ({"items": [{"queue": "q", "transactionId": "", "payload": 1}]}, "transactionId"),
        ({"items": [{"queue": "q", "transactionId": "\t", "payload": 1}]}, "transactionId"),
        ({"items": [{"queue": "q", "traceId": "x" * 256, "payload": 1}]}, "traceId"),
        ({"items": [{"queue": "q", "payload": 1, "priority": 1.5}]}, "items[0].priority"),
        ({"items": [{"queue": "q", "payload": 1, "priority": 10**30}]}, "items[0].priority"),
        ({"items": [{"queue": "q", "payload": 1, "delaySeconds": -1}]}, "items[0].delaySeconds"),
        ({"items": [{"queue": "q", "payload": 1, "runAt": "soon"}]}, "items[0].runAt"),
        ({"items": [{"queue": "q", "payload": 1, "runAt": 5}]}, "items[0].runAt"),
        (
            {"items": [{"queue": "q", "payload": 1, "runAt": "2026-01-01T00:00:00"}]},
            "items[0].runAt",
        ),
        ({"items": [{"queue": "q", "payload": 1, "patition": "x"}]}, "patition"),
        ({"items": [], "item": []}, "item"),
        ({"items": [{"queue": "q", "payload": 1}] * 10_001}, "items"),
        ({"items": [{"queue": "q", "payload": 1}], "bufferMs": -1}, "bufferMs"),
        ({"items": [{"queue": "q", "payload": 1}], "answer": "none"}, "answer"),
        ([], "object"),
    ],
)
async def test_what_is_malformed_is_refused_with_the_name_of_its_field(
    memory_api: Api, body: Any, field: str
) -> None:
    answer = await memory_api.post(PUSH, body)
    assert (answer.status, answer.code) == (400, "invalid_request"), answer
    assert field in answer.error
    assert await memory_api.pop("q") is None


@pytest.mark.parametrize("text", ["\\udc00", "\\ud800", "\\ud800\\u0041"])
async def test_a_name_with_half_a_surrogate_pair_is_refused(memory_api: Api, text: str) -> None:
    body = f'{{"items":[{{"queue":"q{text}","payload":1}}]}}'.encode()
    answer = await memory_api.post(PUSH, body)
    assert (answer.status, answer.code) == (400, "invalid_request")
