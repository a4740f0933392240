"""The application: routing, who may call what, decoding, and an answer for every error."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
from msgspec import Struct

from monarq import errors
from monarq.errors import MonarqError, TransactionFailedError, UnauthorizedError
from monarq.server.answers import STATUSES
from monarq.server.app import Application
from monarq.server.exchange import (
    Handled,
    Pending,
    Principal,
    Request,
    RequestHead,
    Response,
    Role,
    StreamingResponse,
)
from monarq.server.routes import ROUTES
from monarq.server.routing import Route
from monarq.server.service import Service
from tests.server.application import Answered, Api, answered


class Query(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    number: int | None = None
    names: list[str] = []
    is_on: bool = False
    text: str | None = None


class LooseQuery(Struct, frozen=True):
    number: int = 0


class Body(Struct):
    value: int


def route(method: str, path: str, handler: Any, **more: Any) -> Route:
    return Route(method=method, path=path, handler=handler, summary="s", tag="t", **more)


def told(service: Service, request: Request) -> Response:
    return Response(200, repr((request.path, request.query, request.body)).encode())


def app_of(service: Service, *routes: Route, **hooks: Any) -> Application:
    return Application(service, routes, **hooks)


async def call(
    app: Application,
    method: str,
    target: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
) -> Answered:
    return await answered(app.handle(RequestHead(method, target, headers or {}), body))


# --- routing ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/api/v1/push/", 404),
        ("GET", "/API/v1/push", 404),
        ("GET", "/api/v1/pushed", 404),
        ("GET", "//api/v1/push", 404),
        ("GET", "/api/v1/push", 405),
        ("PUT", "/api/v1/push", 405),
        ("DELETE", "/api/v1/pop/queue/q", 405),
        ("HEAD", "/api/v1/push", 405),
        ("PROPFIND", "/api/v1/push", 405),
        ("GET", "no-slash", 400),
        ("GET", "", 400),
        ("GET", "ftp://host/api/v1/push", 400),
    ],
)
async def test_what_there_is_not_is_refused_as_json(
    memory_api: Api, method: str, target: str, status: int
) -> None:
    app = app_of(memory_api.service, *(r for r in ROUTES if "{" in r.path or r.method == "POST"))
    answer = await call(app, method, target)
    assert answer.status == status
    assert answer.error


async def test_a_wrong_method_is_told_the_right_ones(memory_api: Api) -> None:
    app = app_of(
        memory_api.service,
        route("GET", "/thing/{id}", told),
        route("DELETE", "/thing/{id}", told, role=Role.ADMIN),
    )
    answer = await call(app, "POST", "/thing/1")
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert answer.headers["Allow"] == "DELETE, GET, HEAD, OPTIONS"
    options = await call(app, "OPTIONS", "/thing/1")
    assert (options.status, options.headers["Allow"]) == (204, answer.headers["Allow"])
    assert (await call(app, "OPTIONS", "*")).status == 204
    assert (await call(app, "OPTIONS", "/none")).status == 404


async def test_a_literal_segment_wins_over_a_parameter(memory_api: Api) -> None:
    app = app_of(
        memory_api.service,
        route("GET", "/groups/{group}", told),
        route("GET", "/groups/lagging", lambda service, request: Response(200, b"literal")),
        route("GET", "/groups/{group}/queues", told),
    )
    assert (await call(app, "GET", "/groups/lagging")).body == b"literal"
    assert b"lagging" in (await call(app, "GET", "/groups/lagging/queues")).body
    assert b"'a/b c'" in (await call(app, "GET", "/groups/a%2Fb%20c")).body
    assert b"'a+b'" in (await call(app, "GET", "/groups/a+b")).body


async def test_a_target_may_be_a_whole_url(memory_api: Api) -> None:
    app = app_of(memory_api.service, route("GET", "/thing", told, query=Query))
    answer = await call(app, "GET", "http://host:80/thing?number=5")
    assert (answer.status, b"number=5" in answer.body) == (200, True)


# --- decoding --------------------------------------------------------------------------


async def test_queries_are_decoded_into_what_the_route_says(memory_api: Api) -> None:
    app = app_of(memory_api.service, route("GET", "/thing", told, query=Query))
    answer = await call(app, "GET", "/thing?number=5&names=a&names=b%26&isOn=True&text=null+%2B")
    query = Query(number=5, names=["a", "b&"], is_on=True, text="null +")
    assert answer.body == repr(({}, query, None)).encode()
    for again in range(3):
        answer = await call(app, "GET", f"/thing?number={again}")
        assert f"number={again}".encode() in answer.body


@pytest.mark.parametrize(
    "query", ["number=x", "number=1&number=2", "isOn=2", "other=1", "is_on=true", "number=%FF"]
)
async def test_a_bad_query_is_refused_again_and_again(memory_api: Api, query: str) -> None:
    app = app_of(memory_api.service, route("GET", "/thing", told, query=Query))
    for _ in range(3):
        assert (await call(app, "GET", f"/thing?{query}")).status == 400


async def test_unknown_parameters_are_passed_over_where_the_route_allows_it(
    memory_api: Api,
) -> None:
    app = app_of(
        memory_api.service,
        route("GET", "/loose", told, query=LooseQuery),
        route("GET", "/none", told),
    )
    assert b"number=5" in (await call(app, "GET", "/loose?x=1&number=5&x=2")).body
    assert (await call(app, "GET", "/none?")).status == 200
    answer = await call(app, "GET", "/none?x=1")
    assert (answer.status, "'x'" in answer.error) == (400, True)


async def test_many_different_targets_are_not_all_remembered(memory_api: Api) -> None:
    app = app_of(memory_api.service, route("GET", "/thing/{id}", told))
    for number in range(10_000):
        await call(app, "GET", f"/thing/{number}")
    assert len(app._targets) < 5_000
    assert b"'7'" in (await call(app, "GET", "/thing/7")).body


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (None, 200),
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("application/vnd.api+json", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/x-queen-push", 415),
        ("multipart/form-data; boundary=json", 415),
        ("application/jsonp", 415),
        ("", 415),
    ],
)
async def test_a_body_must_be_called_json(memory_api: Api, kind: str | None, status: int) -> None:
    app = app_of(memory_api.service, route("POST", "/thing", told, body=Body))
    headers = {} if kind is None else {"content-type": kind}
    answer = await call(app, "POST", "/thing", b'{"value":1}', headers)
    assert answer.status == status


@pytest.mark.parametrize(
    ("encoding", "status"),
    [("identity", 200), ("Identity", 200), ("gzip", 415), ("zstd", 415), ("identity, gzip", 415)],
)
async def test_a_body_that_is_compressed_is_refused_as_such(
    memory_api: Api, encoding: str, status: int
) -> None:
    app = app_of(memory_api.service, route("POST", "/thing", told, body=Body))
    headers = {"content-type": "application/json", "content-encoding": encoding}
    answer = await call(app, "POST", "/thing", b'{"value":1}', headers)
    assert answer.status == status
    if status == 415:
        assert f"Content-Encoding: {encoding}" in answer.error


async def test_of_a_field_that_is_given_twice_the_last_one_counts(memory_api: Api) -> None:
    app = app_of(memory_api.service, route("POST", "/thing", told, body=Body))
    answer = await call(app, "POST", "/thing", b'{"value":1,"value":2}', {})
    assert (answer.status, b"value=2" in answer.body) == (200, True)


@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}])
async def test_an_empty_body_is_an_object_without_fields(
    memory_api: Api, headers: dict[str, str]
) -> None:
    app = app_of(memory_api.service, route("POST", "/thing", told, body=Body))
    answer = await call(app, "POST", "/thing", b"", headers)
    assert (answer.status, "value" in answer.error) == (400, True)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"nonsense",
        b'{"value":1}x',
        b'{"value":1e400}',
        b'{"value":true}',
        b'{"other":"\xff","value":1}',
        b'{"other":' + b"[" * 200_000 + b"]" * 200_000 + b',"value":1}',
        b"\x00",
        b"\xff\xfe",
        b"1" * 100_000,
    ],
    ids=lambda body: repr(body[:24]),
)
async def test_a_bad_body_is_refused_and_the_next_one_is_taken(
    memory_api: Api, body: bytes
) -> None:
    app = app_of(memory_api.service, route("POST", "/thing", told, body=Body))
    answer = await call(app, "POST", "/thing", body)
    assert answer.code == "invalid_request"
    assert answer.status == 400
    assert (await call(app, "POST", "/thing", b'{"value":1}')).status == 200


# --- who may call what ------------------------------------------------------------------


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


# --- errors ----------------------------------------------------------------------------


ALL_ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, MonarqError)
]


def test_every_error_has_a_status() -> None:
    inner = {"error", "schema_version", "invalid_settings", "payload", "data_loss"}
    assert {kind.code for kind in ALL_ERRORS} - inner == set(STATUSES)


def _raised(kind: type[MonarqError]) -> MonarqError:
    if kind is TransactionFailedError:
        return TransactionFailedError(3, errors.ConflictError("it is so"))
    return kind("it is so")


@pytest.mark.parametrize("kind", ALL_ERRORS)
@pytest.mark.parametrize("when", ["at once", "in a coroutine", "pending"])
async def test_every_error_is_answered_as_json_with_its_code(
    memory_api: Api, kind: type[MonarqError], when: str
) -> None:
    def handler(service: Service, request: Request) -> Handled:
        error = _raised(kind)
        if when == "at once":
            raise error
        if when == "pending":
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            future.set_exception(error)
            return Pending(future, lambda result: Response())

        async def later() -> Response:
            raise error

        return later()

    app = app_of(memory_api.service, route("GET", "/thing", handler))
    answer = await call(app, "GET", "/thing")
    assert answer.status == STATUSES.get(kind.code, 500)
    assert (answer.code, "it is so" in answer.error) == (kind.code, True)
    assert ("Retry-After" in answer.headers) == (answer.status in (429, 503))


@pytest.mark.parametrize("code", ["store_unavailable", "overloaded", "draining"])
async def test_an_error_that_will_pass_speaks_of_the_connection(memory_api: Api, code: str) -> None:
    """Queen's consumers go on after a 5xx only if its text does."""
    kind = next(kind for kind in ALL_ERRORS if kind.code == code)

    def handler(service: Service, request: Request) -> Handled:
        raise kind("for some reason")

    answer = await call(
        app_of(memory_api.service, route("GET", "/thing", handler)), "GET", "/thing"
    )
    assert answer.status == 503
    assert "connection" in answer.error


@pytest.mark.parametrize("when", ["at once", "in a coroutine", "pending", "at the finish"])
async def test_a_fault_of_ours_is_500_without_its_trace_and_logged(
    memory_api: Api, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("a secret of ours")

    async def fail_later(*_: Any) -> Response:
        fail()
        return Response()

    def pending(service: Service, request: Request) -> Handled:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if when == "pending":
            future.set_exception(ZeroDivisionError("a secret of ours"))
            return Pending(future, lambda result: Response())
        future.set_result(None)
        return Pending(future, fail)

    handler = {"at once": fail, "in a coroutine": fail_later}.get(when, pending)
    app = app_of(memory_api.service, route("GET", "/thing", handler))
    with caplog.at_level(logging.ERROR):
        answer = await call(app, "GET", "/thing")
    assert (answer.status, answer.code) == (500, "internal")
    assert b"secret" not in answer.body
    assert b"Traceback" not in answer.body
    assert "a secret of ours" in caplog.text


# --- observing -------------------------------------------------------------------------


async def test_every_answer_is_told_of_once_with_its_route_status_and_time(
    memory_api: Api,
) -> None:
    seen: list[tuple[str | None, int, dict[str, str]]] = []

    def observe(found: Route | None, headers: dict[str, str], status: int, seconds: float) -> None:
        assert 0 <= seconds < 20
        seen.append((found and found.path, status, headers))

    async def chunks() -> AsyncIterator[bytes]:
        yield b"x"

    async def stream(service: Service, request: Request) -> StreamingResponse:
        return StreamingResponse(chunks())

    app = app_of(memory_api.service, *ROUTES, route("GET", "/stream", stream), observe=observe)
    headers = {"traceparent": "x"}
    await call(app, "POST", "/api/v1/push", b'{"items":[{"queue":"q","payload":1}]}', headers)
    await call(app, "POST", "/api/v1/push", b'{"items":[{"queue":"q","payload":1,"priority":1}]}')
    await call(app, "POST", "/api/v1/push", b"nonsense")
    await call(app, "GET", "/api/v1/pop/queue/q")
    await call(app, "GET", "/api/v1/pop/queue/q")
    await call(app, "GET", "/none-such")
    await call(app, "POST", "/api/v1/configure", b'{"queue":"q"}')
    streamed = app.handle(RequestHead("GET", "/stream", {}), b"")
    assert asyncio.iscoroutine(streamed)
    assert isinstance(await streamed, StreamingResponse)
    pop = "/api/v1/pop/queue/{queue}"
    assert [(path, status) for path, status, _ in seen] == [
        ("/api/v1/push", 201),
        ("/api/v1/push", 400),
        ("/api/v1/push", 400),
        (pop, 200),
        (pop, 204),
        (None, 404),
        ("/api/v1/configure", 200),
        ("/stream", 200),
    ]
    assert seen[0][2] is headers
