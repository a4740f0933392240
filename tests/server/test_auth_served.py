"""Authentication of a real server: who gets in, what each may do, whose name is stamped."""

import contextlib
import http.client
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest

from monarq.api_keys import create_key, revoke_key
from monarq.operations.operation import Role
from monarq.server.routes import ROUTES
from tests.server.conftest import StartServer
from tests.server.serving import ServerProcess

PUSH = "/api/v1/push"
SECRET = "a secret of thirty-two bytes or more"

ON_SQLITE = pytest.mark.parametrize("served_store", ["sqlite"], indirect=True)


#: What is sent here has a body, or is called otherwise, for no other reason than its size or age.
CHANGES_NOTHING = {
    "/api/v1/stats/refresh",
    "/api/v1/session",
    "/api/v1/consumer-groups/{group}/queues/{queue}/seek/preview",
    "/api/v1/consumer-groups/{group}/queues/{queue}/partitions/{partition}/seek/preview",
    "/api/v1/export/messages",
    "/api/v1/export/rows",
}


def bearer(role: str, **more: Any) -> dict[str, str]:
    claims = {"sub": f"the {role}", "role": role, "exp": int(time.time()) + 600} | more
    return {"Authorization": f"Bearer {jwt.encode(claims, SECRET, 'HS256')}"}


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.fixture
def guarded(start_server: StartServer, key_file: Path) -> ServerProcess:
    create_key(key_file, name="unused", role="read", now=0)
    return start_server(auth=True, jwt_secret=SECRET, api_keys=str(key_file))


@ON_SQLITE
def test_every_route_but_the_open_ones_wants_credentials(guarded: ServerProcess) -> None:
    assert {route.path for route in ROUTES if route.role is None} <= {
        "/",
        "/dashboard/{path}",
        "/health",
        "/docs",
        "/openapi.json",
        "/api/v1/session",
    }
    connection = http.client.HTTPConnection("127.0.0.1", guarded.port, timeout=10)
    for route in ROUTES:
        path = route.path.replace("{", "").replace("}", "")
        connection.request(route.method, path, headers={"Content-Type": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
        if route.path == "/dashboard/{path}":
            assert answer.status == 404
        elif (route.method, route.path) == ("POST", "/api/v1/session"):
            assert answer.status == 400
        elif route.role is None:
            assert answer.status == 200, route.path
        else:
            assert answer.status == 401, (route.method, route.path, body)
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert json.loads(body)["code"] == "unauthorized"
    connection.close()


@ON_SQLITE
def test_a_role_may_do_what_it_says_and_no_more(guarded: ServerProcess) -> None:
    ranks = {role: rank for rank, role in enumerate(Role)}
    connection = http.client.HTTPConnection("127.0.0.1", guarded.port, timeout=10)
    for role in Role:
        for route in ROUTES:
            if route.role is None or ranks[route.role] <= ranks[role]:
                continue
            path = route.path.replace("{", "").replace("}", "")
            headers = bearer(role.value) | {"Content-Type": "application/json"}
            connection.request(route.method, path, headers=headers)
            answer = connection.getresponse()
            body = json.loads(answer.read())
            assert (answer.status, body["code"]) == (403, "forbidden"), (role, route.path)
    connection.close()


def test_what_changes_things_needs_more_than_read() -> None:
    """A table that lets readers write is one typing mistake away."""
    for route in ROUTES:
        if route.path in CHANGES_NOTHING:
            continue
        if route.method != "GET":
            assert route.role not in (None, Role.READ), (route.method, route.path)
        elif route.path.startswith("/api/v1/pop"):
            assert route.role is Role.WRITE, route.path


@ON_SQLITE
def test_the_producer_is_who_the_credentials_say_never_who_the_body_says(
    guarded: ServerProcess, key_file: Path
) -> None:
    key, _ = create_key(key_file, name="billing", role="write", now=0)
    by_key = {"X-API-Key": key}
    deadline = time.monotonic() + 10
    while guarded.get("/api/v1/status", headers=by_key).status != 200:
        assert time.monotonic() < deadline  # the file is looked at once a second
    for queue, headers, producer in (("q", bearer("write"), "the write"), ("r", by_key, "billing")):
        forged = {"queue": queue, "payload": "forged", "producerSub": "somebody else"}
        assert guarded.post("/api/v1/push", {"items": [forged]}, headers=headers).status in (
            201,
            400,
        )
        honest = {"queue": queue, "payload": "honest"}
        assert guarded.post("/api/v1/push", {"items": [honest]}, headers=headers).status == 201
        popped = guarded.get(f"/api/v1/pop/queue/{queue}?batch=10", headers=bearer("write"))
        assert {message["producerSub"] for message in popped.json["messages"]} == {producer}


@ON_SQLITE
def test_a_revoked_key_is_refused_by_a_running_server(
    guarded: ServerProcess, key_file: Path
) -> None:
    key, kept = create_key(key_file, name="a", role="read", now=0)
    headers = {"Authorization": f"Bearer {key}"}
    deadline = time.monotonic() + 10
    while guarded.get("/api/v1/status", headers=headers).status != 200:
        assert time.monotonic() < deadline
    revoke_key(key_file, kept.id)
    while guarded.get("/api/v1/status", headers=headers).status != 401:
        assert time.monotonic() < deadline


@ON_SQLITE
def test_credentials_in_the_url_are_not_taken(guarded: ServerProcess) -> None:
    token = bearer("admin")["Authorization"].split()[1]
    for name in ("token", "access_token", "api_key", "apiKey", "authorization"):
        assert guarded.get(f"/api/v1/status?{name}={token}").status == 401


def _unfinished(server: ServerProcess, size: int, *lines: str) -> bytes:
    head = [f"POST {PUSH} HTTP/1.1", f"Host: 127.0.0.1:{server.port}", f"Content-Length: {size}"]
    return "\r\n".join([*head, "Content-Type: application/json", *lines, "", ""]).encode()


@ON_SQLITE
def test_clients_without_credentials_cannot_fill_the_memory_for_bodies(
    start_server: StartServer,
) -> None:
    """Three connections that announce 64 MiB each and send as much as they can, and then nothing,
    would take the memory that every larger push needs."""
    server = start_server(auth=True, jwt_secret=SECRET)
    before = server.memory_bytes
    item = {"queue": "q", "payload": "x" * 400_000}
    with contextlib.ExitStack() as hogs:
        for _ in range(3):
            hog = hogs.enter_context(server.connect())
            with contextlib.suppress(ConnectionError):
                hog.sendall(_unfinished(server, 64 << 20) + b"x" * (4 << 20))
            assert hog.recv(1 << 16).startswith(b"HTTP/1.1 401 ")
        for _ in range(3):
            pushed = server.post(PUSH, {"items": [item]}, headers=bearer("write"))
            assert pushed.status == 201
    assert server.memory_bytes < before + (32 << 20)


@ON_SQLITE
def test_a_client_that_fills_the_memory_for_bodies_locks_nobody_else_out(
    start_server: StartServer,
) -> None:
    server = start_server(
        auth=True, jwt_secret=SECRET, max_body_bytes=8 << 20, inbox_max_bytes=8 << 20
    )
    token = bearer("write", sub="hog")["Authorization"]
    item = {"queue": "q", "payload": "x" * 400_000}
    with contextlib.ExitStack() as hogs:
        held = [hogs.enter_context(server.connect()) for _ in range(3)]
        for hog in held:
            hog.sendall(_unfinished(server, 8 << 20, f"Authorization: {token}"))
            hog.sendall(b"x" * (3_900 << 10))
        for _ in range(5):
            pushed = server.post(PUSH, {"items": [item]}, headers=bearer("write", sub="ann"))
            assert pushed.status == 201
        answers = []
        for hog in held:
            hog.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                answers.append(hog.recv(1 << 16))
    assert answers
    assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in answers)


@ON_SQLITE
def test_no_client_without_credentials_is_told_to_send_its_body(guarded: ServerProcess) -> None:
    with guarded.connect() as client:
        client.sendall(_unfinished(guarded, 100, "Expect: 100-continue"))
        received = b""
        while piece := client.recv(1 << 16):
            received += piece
    assert received.startswith(b"HTTP/1.1 401 ")
    assert received.count(b"HTTP/1.1") == 1


@ON_SQLITE
def test_the_sign_in_takes_a_small_body_only(guarded: ServerProcess) -> None:
    with guarded.connect() as client:
        client.sendall(_unfinished(guarded, 100 << 10).replace(PUSH.encode(), b"/api/v1/session"))
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 413 ")
