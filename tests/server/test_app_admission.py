"""What the application decides by a request's head alone, and calls that take no body."""

import inspect
from collections.abc import Awaitable

import pytest

from monarq.errors import UnauthorizedError
from monarq.operations.operation import Role
from monarq.server.app import Application
from monarq.server.exchange import (
    UNAUTHENTICATED,
    Admission,
    Admitted,
    Principal,
    RequestHead,
    Response,
)
from monarq.server.routes import ROUTES
from tests.server.application import JSON_TYPE, Api, answered
from tests.server.routed import app_of, call, route, told

SMALL = 64 << 10
PUSH = "/api/v1/push"


async def admitted(
    app: Application, method: str, target: str, headers: dict[str, str] | None = None
) -> Admitted:
    answer = app.admit(RequestHead(method, target, headers or {}))
    return await answer if inspect.iscoroutine(answer) else answer  # type: ignore[return-value]


def guarded(api: Api, *, later: bool) -> Application:
    """Knows the role in the header X-Role."""

    def principal(headers: dict[str, str]) -> Principal:
        if "x-role" not in headers:
            raise UnauthorizedError("who are you?")
        return Principal("ann", Role(headers["x-role"]))

    async def checked(headers: dict[str, str]) -> Principal:
        return principal(headers)

    def authenticate(headers: dict[str, str]) -> Principal | Awaitable[Principal]:
        return checked(headers) if later else principal(headers)

    return Application(api.service, ROUTES, authenticate=authenticate)


@pytest.mark.parametrize("later", [False, True])
async def test_a_body_is_admitted_for_the_role_of_its_call_only(
    memory_api: Api, later: bool
) -> None:
    app = guarded(memory_api, later=later)
    for headers, status in (({}, 401), ({"x-role": "read"}, 403)):
        refused = await admitted(app, "POST", PUSH, headers)
        assert isinstance(refused, Response)
        assert refused.status == status
    good = await admitted(app, "POST", PUSH, {"x-role": "write"})
    assert good == Admission(Principal("ann", Role.WRITE), None, "principal ann")


@pytest.mark.parametrize(
    ("method", "target", "headers", "status"),
    [
        ("POST", "/none", {}, 404),
        ("PUT", PUSH, {}, 405),
        ("POST", PUSH, {"x-role": "write", "origin": "http://elsewhere"}, 403),
        ("POST", f"{PUSH}?x=1", {"x-role": "write"}, 400),
    ],
)
async def test_a_head_that_is_wrong_is_refused_without_its_body(
    memory_api: Api, method: str, target: str, headers: dict[str, str], status: int
) -> None:
    refused = await admitted(guarded(memory_api, later=False), method, target, headers)
    assert isinstance(refused, Response)
    assert refused.status == status


async def test_a_call_without_credentials_may_send_a_small_body_only(memory_api: Api) -> None:
    app = guarded(memory_api, later=False)
    for method, target in (
        ("POST", "/api/v1/session"),
        ("GET", "/health"),
        ("OPTIONS", PUSH),
    ):
        small = await admitted(app, method, target)
        assert isinstance(small, Admission)
        assert (small.most_bytes, small.owner) == (SMALL, UNAUTHENTICATED), target


async def test_that_limit_holds_for_a_body_that_comes_with_its_head(memory_api: Api) -> None:
    app = guarded(memory_api, later=False)
    for size, status in ((SMALL, 400), (SMALL + 1, 413)):
        answer = await call(app, "POST", "/api/v1/session", b" " * size)
        assert answer.status == status


async def test_without_authentication_bodies_are_charged_to_the_address(memory_api: Api) -> None:
    app = Application(memory_api.service, ROUTES)
    host = {"host": "localhost"}
    large = await admitted(app, "POST", PUSH, host)
    small = await admitted(app, "POST", "/api/v1/resources/queues/q/pause", host)
    assert isinstance(large, Admission)
    assert isinstance(small, Admission)
    assert (large.most_bytes, large.owner) == (None, None)
    assert (small.most_bytes, small.owner) == (SMALL, None)


async def test_a_body_that_was_admitted_is_not_authenticated_again(memory_api: Api) -> None:
    seen: list[dict[str, str]] = []

    def authenticate(headers: dict[str, str]) -> Principal:
        seen.append(headers)
        return Principal("ann", Role.WRITE)

    app = Application(memory_api.service, ROUTES, authenticate=authenticate)
    head = RequestHead("POST", PUSH, dict(JSON_TYPE))
    admission = app.admit(head)
    assert isinstance(admission, Admission)
    body = b'{"items":[{"queue":"q","payload":1}]}'
    assert (await answered(app.handle(head, body, admission))).status == 201
    assert len(seen) == 1
    popped = await memory_api.pop("q")
    assert popped["messages"][0]["producerSub"] == "ann"


async def test_a_refusal_by_the_head_is_observed_once(memory_api: Api) -> None:
    seen: list[tuple[str | None, int]] = []
    app = app_of(
        memory_api.service,
        route("POST", "/thing", told),
        observe=lambda found, headers, status, seconds: seen.append((found and found.path, status)),
    )
    head = RequestHead("POST", "/thing?x=1", {})
    assert isinstance(app.admit(head), Response)
    assert seen == [("/thing", 400)]


# --- calls that take no body ---


BODILESS = [one for one in ROUTES if one.body is None and one.method != "GET"]


@pytest.mark.parametrize("one", BODILESS, ids=lambda one: f"{one.method} {one.path}")
async def test_a_call_that_takes_no_body_refuses_one(memory_api: Api, one: object) -> None:
    await memory_api.push_payloads("queue", 1, 2)
    path = one.path.replace("{", "").replace("}", "")  # type: ignore[attr-defined]
    for body in (b'{"scheduled": true}', b"[]", b"x"):
        answer = await memory_api.request(one.method, path, body)  # type: ignore[attr-defined]
        assert (answer.status, answer.code) == (400, "invalid_request")
        assert "takes no body" in answer.error
    assert await memory_api.data("queue") == [1, 2]


@pytest.mark.parametrize("body", [b"", b"{}", b" {}\n", b"null"])
async def test_an_empty_object_counts_as_no_body(memory_api: Api, body: bytes) -> None:
    app = app_of(memory_api.service, route("POST", "/thing", told))
    assert (await call(app, "POST", "/thing", body)).status == 200
    assert (await call(app, "POST", "/thing", b'{"a":1}')).status == 400


async def test_a_get_that_carries_a_body_is_refused(memory_api: Api) -> None:
    await memory_api.push_payloads("q", 1)
    answer = await memory_api.request("GET", "/api/v1/pop/queue/q", {"autoAck": True})
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert await memory_api.data("q") == [1]
