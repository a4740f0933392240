"""A name with a NUL or half a surrogate pair is a 400, wherever a request has it."""

from typing import Any

import pytest

from monarq.server.routes import ROUTES
from tests.server.application import Api

#: Bodies of calls, each with a name to fill in.
BODIES: dict[str, tuple[str, str]] = {
    "push": ("/api/v1/push", '{"items":[{"queue":"NAME","payload":1}]}'),
    "configure": ("/api/v1/configure", '{"queue":"NAME"}'),
    "archived": ("/api/v1/export/archived", '{"queue":"NAME","positions":{}}'),
    "redrive": ("/api/v1/dlq/redrive", '{"queue":"q","to":"NAME"}'),
    "filter": ("/api/v1/dlq/redrive", '{"queue":"NAME"}'),
    "ack": ("/api/v1/ack", '{"transactionId":"NAME","partitionId":1,"status":"completed"}'),
    "job": ("/api/v1/jobs", '{"items":[{"queue":"NAME","payload":1}]}'),
    "seek": ("/api/v1/consumer-groups/g/queues/NAME/seek", '{"toEnd":true}'),
}


@pytest.mark.parametrize("name", ["\\u0000", "a\\u0000b", "\\ud800", "\\udc00x"])
@pytest.mark.parametrize("what", BODIES)
async def test_in_a_body(api: Api, what: str, name: str) -> None:
    path, body = BODIES[what]
    target = path.replace("NAME", "q%00")
    answer = await api.post(target, body.replace("NAME", name).encode())
    assert (answer.status, answer.code) == (400, "invalid_request"), answer


def paths() -> list[tuple[str, str]]:
    """The paths that have a name in them, and their methods."""
    return sorted({(route.method, route.path) for route in ROUTES if "{" in route.path})


@pytest.mark.parametrize("name", ["%00", "a%00b", "%ED%A0%80"])
async def test_in_a_path(api: Api, name: str) -> None:
    for method, path in paths():
        if "{path}" in path or "events" in path:
            continue
        parts = [name if part.startswith("{") else part for part in path.split("/")]
        answer: Any = await api.request(method, "/".join(parts))
        assert (answer.status, answer.code) == (400, "invalid_request"), (method, path, answer)


@pytest.mark.parametrize("name", ["%00", "a%00b", "%ED%A0%80"])
async def test_in_a_query(api: Api, name: str) -> None:
    for target in (
        *("/api/v1/messages?queue={}", "/api/v1/dlq?queue={}", "/api/v1/dlq?consumerGroup={}"),
        *("/api/v1/export/archived?queue={}", "/api/v1/export/plan?queue={}"),
        *("/api/v1/pop?namespace={}", "/api/v1/pop/queue/q?consumerGroup={}"),
        *("/api/v1/consumer-groups?queue={}", "/api/v1/resources/queues?namespace={}"),
    ):
        answer = await api.get(target.format(name))
        assert (answer.status, answer.code) == (400, "invalid_request"), (target, answer)
