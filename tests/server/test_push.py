"""Push over the API: what is answered, what is kept, and what is refused."""

import asyncio
import json
from typing import Any

import pytest

from monarq.operations.operation import Role
from monarq.server.exchange import Principal
from tests.server.application import BOUND, Api, dumps

PUSH = "/api/v1/push"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_the_answer_has_the_ids_of_each_item_in_the_order_of_the_items(api: Api) -> None:
    answer = await api.push(
        {"queue": "a", "payload": 1, "partition": "p", "transactionId": "t-1", "traceId": "trace"},
        {"queue": "b", "payload": 2},
        {"queue": "a", "payload": 3, "partition": "p"},
    )
    first, other, second = answer
    assert first == {
        "index": 0,
        "status": "queued",
        "message_id": f"{first['partition_id']}-1",
        "transaction_id": "t-1",
        "partition_id": first["partition_id"],
        "trace_id": "trace",
        "queueName": "a",
        "seq": 1,
    }
    assert isinstance(first["partition_id"], str)
    assert (other["index"], other["queueName"], other["seq"]) == (1, "b", 1)
    assert (second["index"], second["seq"]) == (2, 2)
    assert second["partition_id"] == first["partition_id"] != other["partition_id"]
    assert second["transaction_id"] == second["message_id"]


async def test_a_duplicate_is_answered_with_the_ids_of_the_first_and_not_stored(api: Api) -> None:
    item = {"queue": "q", "payload": "first", "transactionId": "t"}
    first = (await api.push(item))[0]
    again = await api.push({**item, "payload": "second"}, {"queue": "q", "payload": "third"})
    assert again[0] == {**first, "status": "duplicate"}
    assert again[1]["status"] == "queued"
    assert await api.data("q") == ["first", "third"]


async def test_items_without_a_queue_or_partition_go_where_the_body_says(api: Api) -> None:
    items = [{"payload": 1}, {"payload": 2, "queue": "b"}, {"payload": 3, "partition": "x"}]
    await api.post(PUSH, {"items": items, "queue": "a", "partition": "p"})
    await api.post(PUSH, {"items": [{"payload": 4}], "queue": "a"})
    found = {
        (queue, row["partition"], row["data"])
        for queue in ("a", "b")
        for row in (await api.get(f"/api/v1/messages?queue={queue}")).json["messages"]
    }
    assert found == {("a", "p", 1), ("b", "p", 2), ("a", "x", 3), ("a", "Default", 4)}


@pytest.mark.parametrize("name", ["queue", "partition"])
async def test_a_name_that_is_said_for_all_items_is_checked_even_if_none_needs_it(
    api: Api, name: str
) -> None:
    for items in ([], [{"queue": "q", "partition": "p", "payload": 1}]):
        answer = await api.post(PUSH, {"items": items, name: "a\u009bb"})
        assert answer.status == 400
        assert name in answer.json["error"]
    assert await api.data("q") == []


async def test_a_push_that_asks_for_counts_is_told_how_many_and_nothing_else(api: Api) -> None:
    items = [{"queue": "q", "payload": n, "transactionId": f"t-{n}"} for n in range(3)]
    first = await api.post(PUSH, {"items": items[:2], "answer": "counts"})
    assert (first.status, first.json) == (201, {"queued": 2, "duplicate": 0, "buffered": 0})
    again = await api.post(PUSH, {"items": items, "answer": "counts"})
    assert again.json == {"queued": 1, "duplicate": 2, "buffered": 0}
    later = await api.post(
        PUSH, {"items": [{"queue": "q", "payload": 3}], "answer": "counts", "bufferMs": 1}
    )
    assert later.json == {"queued": 0, "duplicate": 0, "buffered": 1}
    nothing = await api.post(PUSH, {"items": [], "answer": "counts"})
    assert nothing.json == {"queued": 0, "duplicate": 0, "buffered": 0}


async def test_a_push_after_another_is_stored_only_if_that_one_is(api: Api) -> None:
    def numbered(number: int, **links: str) -> dict[str, Any]:
        return {"items": [{"queue": "q", "payload": number}], **links}

    early = await api.post(PUSH, numbered(2, mark="b", after="a"))
    assert (early.status, early.json["code"]) == (409, "conflict")
    assert "after which this one comes" in early.json["error"]
    assert (await api.post(PUSH, numbered(1, mark="a"))).status == 201
    assert (await api.post(PUSH, numbered(2, mark="b", after="a"))).status == 201
    again = await api.post(PUSH, numbered(2, mark="b", after="a"))
    assert (again.status, again.json["code"]) == (409, "already_pushed")
    assert await api.data("q") == [1, 2]


@pytest.mark.parametrize("links", [{"mark": "m"}, {"after": "m"}])
async def test_a_push_with_a_mark_is_not_answered_before_it_is_stored(
    api: Api, links: dict[str, str]
) -> None:
    body = {"items": [{"queue": "q", "payload": 1}], "bufferMs": 1, **links}
    assert (await api.post(PUSH, body)).status == 400
    assert await api.data("q") == []


async def test_nothing_is_stored_of_a_push_with_one_bad_item(api: Api) -> None:
    answer = await api.post(
        PUSH,
        {
            "items": [
                {"queue": "good", "payload": 1},
                {"queue": "good", "payload": 2, "priority": 3},
            ]
        },
    )
    assert answer.status == 400
    assert "priority" in answer.error
    assert await api.pop("good") is None


ODD_PAYLOADS = [
    b"null",
    b"false",
    b"0",
    b"-0",
    b'""',
    b"[]",
    b'{ "spaces" : [ 1 ,\t2\n] }',
    b"1e999999",
    b"-1.50e-0400",
    b"1" * 5_000,
    b'{"a":1,"a":2,"a":3}',
    b'"\\u0000 \\ud83d\\ude00 \\/ \\b"',
    '"ünïcödé \U0001f600 \u2028"'.encode(),
    b'"\x7f"',
    b"[" * 400 + b"]" * 400,
    b'{"":{"":{"":""}}}',
]


async def test_a_payload_comes_back_byte_for_byte(api: Api) -> None:
    for payload in ODD_PAYLOADS:
        body = b'{"items":[{"queue":"q","payload":  %b  ,"partition":"p"}]}' % payload
        assert (await api.post(PUSH, body)).status == 201
        answer = await api.get("/api/v1/pop/queue/q?autoAck=true")
        assert b'"data":' + payload + b"," in answer.body
        json.loads(answer.body.replace(b"1" * 5_000, b"1"))


async def test_a_name_may_have_255_characters_of_any_width(api: Api) -> None:
    name = "\U0001f600" * 255
    answer = await api.push(
        {"queue": name, "partition": name, "payload": 1, "transactionId": name, "traceId": name}
    )
    assert answer[0]["queueName"] == answer[0]["transaction_id"] == answer[0]["trace_id"] == name


async def test_null_counts_as_absent(api: Api) -> None:
    answer = await api.post(
        PUSH,
        {
            "items": [
                {
                    "queue": "q",
                    "payload": None,
                    "partition": None,
                    "transactionId": None,
                    "traceId": None,
                    "namespace": None,
                    "task": None,
                    "priority": None,
                    "runAt": None,
                    "delaySeconds": None,
                    "maxAttempts": None,
                }
            ],
            "bufferMs": None,
            "bufferMax": None,
        },
    )
    assert answer.status == 201
    popped = await api.pop("q")
    assert (popped["partition"], popped["messages"][0]["data"]) == ("Default", None)


async def test_a_push_of_nothing_answers_nothing(memory_api: Api) -> None:
    answer = await memory_api.post(PUSH, {"items": []})
    assert (answer.status, answer.json) == (201, [])


async def test_the_principal_is_stamped_as_producer(api: Api) -> None:
    api.principal = Principal("alice", Role.WRITE)
    await api.push_payloads("q", 1)
    api.principal = Principal(None, Role.WRITE)
    await api.push_payloads("q", 2)
    popped = await api.pop("q")
    assert [message["producerSub"] for message in popped["messages"]] == ["alice", None]


async def test_traceparent_travels_from_the_push_to_the_pop(api: Api) -> None:
    await api.push({"queue": "q", "payload": 1}, traceparent=TRACEPARENT)
    await api.push({"queue": "q", "payload": 2})
    first, second = (await api.pop("q"))["messages"]
    assert first["traceparent"] == TRACEPARENT
    assert "traceparent" not in second


@pytest.mark.parametrize("header", ["", "x", TRACEPARENT.upper(), TRACEPARENT + "\n", "0" * 9_999])
async def test_a_malformed_traceparent_is_passed_over(memory_api: Api, header: str) -> None:
    await memory_api.push({"queue": "q", "payload": 1}, traceparent=header)
    assert "traceparent" not in (await memory_api.pop("q"))["messages"][0]


@pytest.mark.parametrize(
    ("own", "told", "trace"),
    [
        (b"null", None, TRACEPARENT),
        (b"{}", {}, TRACEPARENT),
        (b"{ }", {}, TRACEPARENT),
        (b'{"a" : [1.50] }', {"a": [1.5]}, TRACEPARENT),
        (b'{"traceparent":"mine"}', {}, "mine"),
        (b'{"traceparent":5}', {}, None),
    ],
)
async def test_headers_of_a_message_are_delivered_with_it(
    memory_api: Api, own: bytes, told: dict[str, Any] | None, trace: str | None
) -> None:
    body = b'{"items":[{"queue":"q","payload":1,"headers":%b}]}' % own
    headers = {"content-type": "application/json", "traceparent": TRACEPARENT}
    assert (await memory_api.post(PUSH, body, headers)).status == 201
    (message,) = (await memory_api.pop("q"))["messages"]
    assert message.get("traceparent") == trace
    del message["headers"]["traceparent"]
    assert message["headers"] == (told or {})


@pytest.mark.parametrize(
    "own",
    [
        b"[]",
        b'"text"',
        b"5",
        b'{"a":' * 40 + b"1" + b"}" * 40,
        b'{"a":' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"a":"' + b"x" * 70_000 + b'"}',
    ],
    ids=lambda own: repr(own[:12]),
)
@pytest.mark.parametrize("traced", [False, True])
async def test_headers_that_could_not_be_delivered_are_refused(
    memory_api: Api, own: bytes, traced: bool
) -> None:
    body = b'{"items":[{"queue":"q","payload":1,"headers":%b}]}' % own
    headers = {"traceparent": TRACEPARENT} if traced else {}
    answer = await memory_api.post(PUSH, body, headers)
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert "headers" in answer.error
    assert await memory_api.pop("q") is None


async def test_a_full_queue_refuses_with_429_and_says_when_to_come_again(api: Api) -> None:
    await api.configure("q", maxSize=2)
    await api.push_payloads("q", 1)
    items = [{"queue": "q", "payload": 2}, {"queue": "q", "payload": 3}]
    answer = await api.post(PUSH, {"items": items})
    assert (answer.status, answer.code) == (429, "queue_full")
    assert answer.headers["Retry-After"] == "1"
    assert await api.data("q") == [1]


async def test_a_payload_over_16_mib_is_refused_and_one_of_16_mib_is_not(memory_api: Api) -> None:
    text = "x" * ((16 << 20) - 2)
    answer = await memory_api.post(PUSH, {"items": [{"queue": "q", "payload": text + "x"}]})
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert "payload" in answer.error
    await memory_api.push_payloads("q", text)
    assert await memory_api.data("q") == [text]


async def test_an_item_with_a_run_time_waits_for_it(api: Api) -> None:
    await api.configure("jobs", "work")
    await api.push({"queue": "jobs", "payload": "at", "runAt": "2023-11-14T23:13:20+01:00"})
    await api.push({"queue": "jobs", "payload": "delayed", "delaySeconds": 60})
    assert await api.data("jobs") == ["at"], "22:13:20Z is when the clock of the tests starts"
    api.clock.advance(59.9)
    assert await api.data("jobs") == []
    api.clock.advance(0.2)
    assert (await api.pop_soon("jobs"))["messages"][0]["data"] == "delayed"


async def test_a_higher_priority_goes_first(api: Api) -> None:
    await api.configure("jobs", "work")
    await api.push({"queue": "jobs", "payload": "low", "priority": 1})
    await api.push({"queue": "jobs", "payload": "high", "priority": 9, "maxAttempts": 7})
    popped = await api.pop("jobs", "batch=1")
    message = popped["messages"][0]
    assert (message["data"], message["priority"], message["maxAttempts"]) == ("high", 9, 7)


@pytest.mark.parametrize("limit", [{"bufferMs": 5}, {"bufferMs": 60_000, "bufferMax": 2}])
async def test_a_buffered_push_is_answered_without_ids_and_stored_soon(
    memory_api: Api, limit: dict[str, int]
) -> None:
    api = memory_api
    items = [{"queue": "q", "payload": 1}, {"queue": "q", "payload": 2, "transactionId": "t"}]
    answer = await api.post(PUSH, {"items": items, **limit})
    assert answer.status == 201
    for index, pushed in enumerate(answer.json):
        assert (pushed["index"], pushed["status"], pushed["queueName"]) == (index, "buffered", "q")
        assert pushed["message_id"] is pushed["partition_id"] is pushed["seq"] is None
    assert answer.json[1]["transaction_id"] == "t"
    api.clock.advance(0.006)
    async with asyncio.timeout(BOUND):
        got = [await api.data("q", "autoAck=true&wait=true&timeout=20000") for _ in range(2)]
    assert got == [[1], [2]]


async def test_many_pushes_at_once_are_each_answered_with_their_own(api: Api) -> None:
    async def one(number: int) -> Any:
        item = {"queue": f"q{number % 3}", "payload": number, "transactionId": f"t{number}"}
        return (await api.push(item, {**item, "partition": "other", "payload": -number}))[1]

    answers = await asyncio.gather(*(one(number) for number in range(200)))
    assert [answer["transaction_id"] for answer in answers] == [f"t{n}" for n in range(200)]
    assert [answer["queueName"] for answer in answers] == [f"q{n % 3}" for n in range(200)]
    places = {(answer["partition_id"], answer["seq"]) for answer in answers}
    assert len(places) == 200


async def test_one_bad_push_among_many_at_once_fails_alone(api: Api) -> None:
    bodies = [{"items": [{"queue": "q", "payload": number}]} for number in range(20)]
    bodies[7]["items"][0]["maxAttempts"] = 3
    bodies[11]["items"][0]["transactionId"] = "\u0001"
    answers = await asyncio.gather(*(api.post(PUSH, body) for body in bodies))
    refused = [number for number, answer in enumerate(answers) if answer.status != 201]
    assert refused == [7, 11]
    assert sorted(await api.data("q")) == [n for n in range(20) if n not in refused]


async def test_the_body_may_be_any_json_text(memory_api: Api) -> None:
    """Escapes, spaces and the order of the fields make no difference."""
    body = dumps({"items": [{"payload": 1, "queue": "caf\u00e9"}]}).replace(b":", b" :\n\t")
    assert b"\\u00e9" in body
    assert (await memory_api.post(PUSH, body)).status == 201
    assert await memory_api.data("caf%C3%A9") == [1]
