"""Bad input to a real server, from the socket to the store: each a clear 4xx, the server goes on
serving, and its memory stays where it was."""

import json
import socket

import pytest

from tests.server.bad_requests import BAD, BAD_CHUNKS
from tests.server.serving import ServerProcess

PUSH = "/api/v1/push"


def item(payload: bytes) -> bytes:
    return b'{"items":[{"queue":"q","payload":%b}]}' % payload


BODIES = {
    "empty": b"",
    "no-json": b"hello",
    "truncated": b'{"items":[{"queue":"q","payl',
    "two-values": item(b"1") + item(b"2"),
    "array": b"[]",
    "null": b"null",
    "items-missing": b"{}",
    "items-null": b'{"items":null}',
    "item-number": b'{"items":[1]}',
    "queue-number": b'{"items":[{"queue":1,"payload":1}]}',
    "queue-empty": b'{"items":[{"queue":"","payload":1}]}',
    "queue-long": b'{"items":[{"queue":"%b","payload":1}]}' % (b"q" * 256),
    "queue-control": b'{"items":[{"queue":"a\\u0000b","payload":1}]}',
    "payload-missing": b'{"items":[{"queue":"q"}]}',
    "invalid-utf-8": item(b'"\xff\xfe"'),
    "utf-16": item(b"1").decode().encode("utf-16"),
    "byte-order-mark": b"\xef\xbb\xbf" + item(b"1"),
    "nul-byte": item(b'"a\x00b"'),
    "nan": item(b"NaN"),
    "single-quotes": item(b"'x'"),
    "trailing-comma": item(b"[1,]"),
    "deep": item(b"[" * 100_000 + b"]" * 100_000),
    "deep-objects": item(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "delay-huge": b'{"items":[{"queue":"q","payload":1,"delaySeconds":1e999}]}',
    "priority-huge": b'{"items":[{"queue":"q","payload":1,"priority":%b}]}' % (b"9" * 5000),
    "time-odd": b'{"items":[{"queue":"q","payload":1,"runAt":"yesterday"}]}',
}

TARGETS = {
    "no-such-path": ("GET", "/api/v1/nothing", 404),
    "wrong-method": ("DELETE", PUSH, 405),
    "wrong-method-known-path": ("PUT", "/api/v1/pop/queue/q", 405),
    "batch-word": ("GET", "/api/v1/pop/queue/q?batch=many", 400),
    "batch-zero": ("GET", "/api/v1/pop/queue/q?batch=0", 400),
    "batch-huge": ("GET", "/api/v1/pop/queue/q?batch=99999999999999999999999", 400),
    "wait-odd": ("GET", "/api/v1/pop/queue/q?wait=perhaps", 400),
    "path-not-utf-8": ("GET", "/api/v1/pop/queue/%ff", 400),
    "path-nul": ("GET", "/api/v1/pop/queue/a%00b", 400),
    "long-name": ("GET", "/api/v1/pop/queue/" + "q" * 300, 400),
}


@pytest.mark.parametrize("served_store", ["sqlite"], indirect=True)
def test_every_bad_body_is_a_clear_4xx_and_stores_nothing(server: ServerProcess) -> None:
    for name, body in BODIES.items():
        answer = server.post(PUSH, body)
        assert 400 <= answer.status < 500, (name, answer)
        assert set(answer.json) == {"error", "code"}, name
        assert len(answer.json["error"]) < 1_000, name
    assert server.get("/api/v1/pop/queue/q").status == 204


@pytest.mark.parametrize("served_store", ["sqlite"], indirect=True)
def test_every_bad_target_is_a_clear_4xx(server: ServerProcess) -> None:
    for name, (method, target, status) in TARGETS.items():
        answer = server.request(method, target)
        assert answer.status == status, (name, answer)
        assert set(answer.json) == {"error", "code"}, name


@pytest.mark.parametrize("served_store", ["sqlite"], indirect=True)
def test_a_content_type_that_is_not_json_is_refused(server: ServerProcess) -> None:
    answer = server.post(PUSH, item(b"1"), headers={"Content-Type": "text/xml"})
    assert answer.status == 415
    assert answer.json["code"]


LARGE = b'"' + b"x" * (4 << 20) + b'"'
LARGE_ITEM = b'{"queue":"%b","payload":' + LARGE + b"%b}"

REFUSED_BODIES = {
    "unknown field": (PUSH, b'{"items":[%b],"nope":1}' % (LARGE_ITEM % (b"log", b""))),
    "malformed item": (PUSH, b'{"items":[%b]}' % (LARGE_ITEM % (b"", b""))),
    "wrong kind": (PUSH, b'{"items":[%b]}' % (LARGE_ITEM % (b"log", b',"priority":3'))),
    "full queue": (PUSH, b'{"items":[%b]}' % (LARGE_ITEM % (b"full", b""))),
    "marked push": (
        PUSH,
        b'{"items":[%b],"mark":"m","after":"n"}' % (LARGE_ITEM % (b"log", b"")),
    ),
    "import": ("/api/v1/import", b'{"items":[%b]}' % (LARGE_ITEM % (b"log", b',"attempts":3'))),
    "job": ("/api/v1/jobs", b'{"items":[%b]}' % (LARGE_ITEM % (b"log", b""))),
    "pushing transaction": (
        "/api/v1/transaction",
        b'{"operations":[{"type":"push","items":[%b]}]}' % (LARGE_ITEM % (b"full", b"")),
    ),
    "transaction without its lease": (
        "/api/v1/transaction",
        b'{"operations":[{"type":"push","items":[%b]}],"requiredLeases":["1"]}'
        % (LARGE_ITEM % (b"log", b"")),
    ),
    "ack": ("/api/v1/ack", b'{"transactionId":"x","partitionId":"1","result":%b}' % LARGE),
    "malformed ack in a batch": (
        "/api/v1/ack/batch",
        b'{"acknowledgments":[{"transactionId":1,"status":"failed","error":%b}]}' % LARGE,
    ),
    "unknown ack in a batch": (
        "/api/v1/ack/batch",
        b'{"acknowledgments":[{"transactionId":"x","partitionId":"1","result":%b}]}' % LARGE,
    ),
}


def test_refused_bodies_are_freed_at_once(server: ServerProcess) -> None:
    assert server.post("/api/v1/configure", {"queue": "log"}).status == 200
    full = {"queue": "full", "options": {"maxSize": 1}}
    assert server.post("/api/v1/configure", full).status == 200
    assert server.post(PUSH, {"items": [{"queue": "full", "payload": 1}]}).status == 201

    def refuse(path: str, body: bytes) -> None:
        answer = server.post(path, body)
        assert answer.status >= 400 or not answer.json[0]["success"], answer

    grown = {}
    for name, (path, body) in REFUSED_BODIES.items():
        for _ in range(3):
            refuse(path, body)
        before = server.memory_bytes
        for _ in range(8):
            refuse(path, body)
        grown[name] = server.memory_bytes - before
    assert max(grown.values()) < 12 << 20, grown


def test_memory_stays_flat_under_bad_input(server: ServerProcess) -> None:
    def round_of_bad_input() -> None:
        for data in (*BAD.values(), *BAD_CHUNKS.values()):
            with server.connect() as connection:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
        for body in BODIES.values():
            server.post(PUSH, body)
        large = b"x" * (4 << 20)
        with server.connect() as connection:
            # A body that is cut short.
            head = (
                b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n"
            )
            connection.sendall(head + large)
        assert server.post(PUSH, item(b'"' + large + b'"') + b"!").status == 400

    for _ in range(3):
        round_of_bad_input()
    before = server.memory_bytes
    for _ in range(10):
        round_of_bad_input()
    assert server.memory_bytes - before < 16 << 20
    assert json.loads(server.get("/health").body)
    assert server.post(PUSH, item(b"1")).status == 201
    assert not [entry for entry in server.log if entry.get("level") == "error"]
