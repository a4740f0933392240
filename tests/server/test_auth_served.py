"""Authentication of a real server: who gets in, what each may do, whose name is stamped."""

import http.client
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest

from monarq.api_keys import create_key, revoke_key
from monarq.server.exchange import Role
from monarq.server.routes import ROUTES
from tests.server.conftest import StartServer
from tests.server.serving import ServerProcess

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
