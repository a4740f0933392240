"""No body, however it is made, takes much more memory than its size."""

import subprocess
import sys

import pytest

from tests.server.application import Api

MIB = 1 << 20

_PROGRAM = """
import resource, sys
from monarq.errors import InvalidRequestError
from monarq.server.answers import HttpError
from monarq.server.decoding import body_decoder
from monarq.server.routes import ROUTES

path, head, unit, tail = sys.argv[1:]
(route,) = [route for route in ROUTES if route.path == path and route.method == "POST"]
decode = route.decode or body_decoder(route.body)
size = 48 << 20
body = head.encode() + (unit.encode() * (size // len(unit)))[:-1] + tail.encode()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decode(body)
    print("taken")
except (InvalidRequestError, HttpError) as error:
    print("refused")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def decoded_alone(path: str, head: str, unit: str, tail: str) -> tuple[str, int]:
    """What becomes of a body of 48 MiB in a process of its own, and how many MiB it took."""
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, path, head, unit, tail],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    outcome, taken = ran.stdout.split()
    return outcome, int(taken)


@pytest.mark.parametrize(
    ("path", "head", "unit", "tail"),
    [
        ("/api/v1/push", '{"items":[', '{"queue":"q","payload":1},', "]}"),
        ("/api/v1/push", '{"items":[', "{},", "]}"),
        ("/api/v1/push", '{"items":[', "[],", "]}"),
        ("/api/v1/ack/batch", '{"acknowledgments":[', "{},", "]}"),
        ("/api/v1/ack/batch", '{"acknowledgments":[', "1,", "]}"),
        ("/api/v1/ack/batch", '{"acknowledgments":[{},', '"",', "]}"),
        ("/api/v1/transaction", '{"operations":[', '{"type":"ack"},', "]}"),
        (
            "/api/v1/transaction",
            '{"operations":[{"type":"push","items":[',
            '{"queue":"q","payload":1},',
            "]}]}",
        ),
        (
            "/api/v1/transaction",
            '{"operations":[{"type":"ack"}],"requiredLeases":[',
            '"a",',
            "]}",
        ),
        ("/api/v1/dlq/redrive", '{"ids":[', "1,", "]}"),
        ("/api/v1/traces", '{"traceNames":[', '"a",', "]}"),
        ("/api/v1/configure", '{"queue":"q","options":{"ttl":[', "[],", "]}}"),
    ],
)
def test_a_list_of_next_to_nothing_is_refused_before_it_takes_memory(
    path: str, head: str, unit: str, tail: str
) -> None:
    outcome, taken = decoded_alone(path, head, unit, tail)
    assert (outcome, taken < 100) == ("refused", True), taken


def test_a_large_payload_of_many_small_objects_is_taken_as_it_is() -> None:
    head = '{"items":[{"queue":"q","payload":['
    outcome, taken = decoded_alone("/api/v1/push", head, '{"a":1},', "]}]}")
    assert (outcome, taken < 100) == ("taken", True), taken


async def test_a_large_push_of_as_many_as_are_allowed_is_taken(memory_api: Api) -> None:
    item = b'{"queue":"q","payload":"%b"}' % (b"x" * 300)
    body = b'{"items":[' + b",".join([item] * 10_000) + b"]}"
    assert len(body) > 2 * MIB
    assert (await memory_api.post("/api/v1/push", body)).status == 201
    refused = await memory_api.post("/api/v1/push", body[:-2] + b"," + item + b"]}")
    assert (refused.status, refused.code) == (400, "invalid_request")
    assert len(await memory_api.data("q", "batch=10000&autoAck=true")) == 10_000
    assert await memory_api.pop("q") is None


async def test_a_large_batch_of_acks_is_taken_and_one_bad_one_spoils_only_itself(
    memory_api: Api,
) -> None:
    await memory_api.push_payloads("q", *range(10_000))
    messages = (await memory_api.pop("q", "batch=10000"))["messages"]
    acks = [
        {
            "transactionId": message["transactionId"],
            "partitionId": message["partitionId"],
            "leaseId": message["leaseId"],
            "status": "completed" if message["data"] else "bogus",
            "error": "x" * 150,
        }
        for message in messages
    ]
    answer = await memory_api.post("/api/v1/ack/batch", {"acknowledgments": acks})
    assert answer.status == 200
    assert [one["success"] for one in answer.json] == [False] + [True] * 9_999


async def test_a_call_without_payloads_takes_no_large_body(memory_api: Api) -> None:
    body = b'{"all":true,"ids":[' + b"1," * MIB + b"1]}"
    answer = await memory_api.post("/api/v1/dlq/redrive", body)
    assert (answer.status, answer.code) == (413, "body_too_large")
