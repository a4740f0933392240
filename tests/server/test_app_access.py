"""Who may call what, and what is told to who may not."""

import asyncio
from collections.abc import Awaitable

import pytest

from monarq.errors import UnauthorizedError
from monarq.operations.operation import Role
from monarq.server.exchange import Pending, Principal, RequestHead
from monarq.server.routes import ROUTES
from tests.server.application import Api, answered
from tests.server.routed import app_of, call, route, told


@pytest.mark.parametrize(
    ("needed", "role", "status"),
    [
        (None, None, 200),
        (Role.READ, None, 401),
        (Role.READ, Role.READ, 200),
        (Role.READ, Role.ADMIN, 200),
        (Role.WRITE, Role.READ, 403),
        (Role.WRITE, Role.WRITE, 200),
        (Role.ADMIN, Role.WRITE, 403),
        (Role.ADMIN, Role.ADMIN, 200),
    ],
)
@pytest.mark.parametrize("later", [False, True])
async def test_a_call_needs_its_role(
    memory_api: Api, needed: Role | None, role: Role | None, status: int, later: bool
) -> None:
    def principal() -> Principal:
        if role is None:
            raise UnauthorizedError("who are you?")
        return Principal("me", role)

    async def checked() -> Principal:
        return principal()

    def authenticate(headers: dict[str, str]) -> Principal | Awaitable[Principal]:
        return checked() if later else principal()

    app = app_of(
        memory_api.service, route("GET", "/thing", told, role=needed), authenticate=authenticate
    )
    answer = await call(app, "GET", "/thing")
    assert answer.status == status
    if status == 401:
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    if status == 403:
        assert needed in answer.error


async def test_who_may_not_call_learns_nothing_of_the_request(memory_api: Api) -> None:
    def authenticate(headers: dict[str, str]) -> Principal:
        raise UnauthorizedError("who are you?")

    app = app_of(memory_api.service, *ROUTES, authenticate=authenticate)
    for body in (b"", b"nonsense", b'{"items":[]}'):
        assert (await call(app, "POST", "/api/v1/push?x=1", body)).status == 401


async def test_a_head_that_was_good_once_is_good_for_nobody_else(memory_api: Api) -> None:
    who: list[Principal] = []

    def authenticate(headers: dict[str, str]) -> Principal:
        if not who:
            raise UnauthorizedError("who are you?")
        return who[0]

    app = app_of(memory_api.service, *ROUTES, authenticate=authenticate)
    head = RequestHead("POST", "/api/v1/push", {"content-type": "text/plain"})

    async def status(body: bytes, *principals: Principal) -> int:
        who[:] = principals
        return (await answered(app.handle(head, body))).status

    writer = Principal("writer", Role.WRITE)
    for _ in range(2):
        assert await status(b"", writer) == 400, "there are no items"
        assert await status(b'{"items":[]}', writer) == 415
        assert await status(b"") == 401
        assert await status(b"", Principal("reader", Role.READ)) == 403
        assert await status(b"", Principal("browser", Role.ADMIN, csrf_token="t")) == 403


async def test_a_head_that_was_refused_is_refused_again(memory_api: Api) -> None:
    app = app_of(memory_api.service, *ROUTES)
    foreign = RequestHead("POST", "/api/v1/push", {"origin": "http://elsewhere"})
    malformed = RequestHead("GET", "/api/v1/pop/queue/q?batch=many", {})
    for _ in range(2):
        assert (await answered(app.handle(foreign, b'{"items":[]}'))).code == "foreign_origin"
        assert (await answered(app.handle(malformed, b""))).status == 400


async def test_reading_is_not_enough_to_push_pop_or_ack(memory_api: Api) -> None:
    memory_api.principal = Principal("reader", Role.READ)
    assert (await memory_api.post("/api/v1/push", {"items": []})).status == 403
    assert (await memory_api.get("/api/v1/pop/queue/q")).status == 403
    assert (await memory_api.post("/api/v1/ack/batch", {"acknowledgments": []})).status == 403


async def test_a_pop_of_a_caller_checked_later_can_still_be_given_back(memory_api: Api) -> None:
    async def checked() -> Principal:
        return Principal("me", Role.WRITE)

    app = app_of(memory_api.service, *ROUTES, authenticate=lambda headers: checked())
    await memory_api.push_payloads("q", 1)
    handled = app.handle(RequestHead("GET", "/api/v1/pop/queue/q", {}), b"")
    assert asyncio.iscoroutine(handled)
    pending = await handled
    assert isinstance(pending, Pending)
    assert pending.undelivered is not None
    pending.undelivered(await pending.future)
    popped = await memory_api.pop("q", "wait=true&timeout=20000")
    assert popped["messages"][0]["attempts"] == 1


async def test_a_link_that_somebody_follows_changes_nothing(memory_api: Api) -> None:
    await memory_api.push_payloads("q", 1)
    link = {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}
    for method, target in (
        ("GET", "/api/v1/pop/queue/q?autoAck=true"),
        ("POST", "/api/v1/pop/queue/q?autoAck=true"),
        ("DELETE", "/api/v1/resources/queues/q"),
        ("DELETE", "/api/v1/session"),
    ):
        answer = await memory_api.request(method, target, None, link)
        assert (answer.status, answer.code) == (403, "navigation"), target
    for target in ("/api/v1/status", "/docs"):
        assert (await memory_api.request("GET", target, None, link)).status == 200
    assert await memory_api.data("q") == [1]
