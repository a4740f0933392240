"""An answer for every error, and every answer told of once."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from monarq import errors
from monarq.errors import MonarqError, TransactionFailedError
from monarq.server.answers import STATUSES
from monarq.server.exchange import (
    Handled,
    Pending,
    Request,
    RequestHead,
    Response,
    StreamingResponse,
)
from monarq.server.routes import ROUTES
from monarq.server.routing import Route
from monarq.server.service import Service
from tests.server.application import Api
from tests.server.routed import app_of, call, route

# --- errors ---


ALL_ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, MonarqError)
]


def test_every_error_has_a_status() -> None:
    inner = {"error", "schema_version", "invalid_settings", "payload", "data_loss", "client_closed"}
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


# --- observing ---


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
