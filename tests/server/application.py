"""The application over a real broker and store, called in process as the protocol calls it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from monarq.broker.broker import Broker
from monarq.clock import ManualClock
from monarq.config import Settings
from monarq.operations.operation import Role
from monarq.server.answers import error_answer
from monarq.server.app import Application
from monarq.server.exchange import Handled, Pending, Principal, RequestHead, Response
from monarq.server.routes import ROUTES
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.store import Store, open_store
from tests.kept_connections import KeptConnections
from tests.kept_schemas import empty_schema
from tests.shared_postgres import POSTGRES_NAMES

BOUND = 20.0
"""Seconds after which something that should have happened never will."""

JSON_TYPE = {"content-type": "application/json"}


@dataclass(frozen=True)
class Answered:
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """What is wrong, of an answer that must be an error as all errors are."""
        assert self.status >= 400, self
        assert set(self.json) >= {"error", "code"}, self
        assert isinstance(self.json["error"], str)
        return str(self.json["error"])

    @property
    def code(self) -> str:
        return str(self.json["code"])


class Api:
    def __init__(self, service: Service, clock: ManualClock) -> None:
        self.service = service
        self.clock = clock
        self.principal = Principal(None, Role.ADMIN)
        self.observed: list[tuple[Route | None, int]] = []
        self._heads: dict[Any, RequestHead] = {}
        self.app = Application(
            service,
            ROUTES,
            authenticate=lambda headers: self.principal,
            observe=lambda route, headers, status, seconds: self.observed.append((route, status)),
        )

    @property
    def broker(self) -> Broker:
        return self.service.broker

    def handle(
        self, method: str, target: str, body: Any = None, headers: Mapping[str, str] = JSON_TYPE
    ) -> Handled:
        sent = body if isinstance(body, bytes) else b"" if body is None else dumps(body)
        key = (method, target, tuple(headers.items()))
        # As the protocol does: the same head is the same object.
        head = self._heads.setdefault(key, RequestHead(method, target, dict(headers)))
        return self.app.handle(head, sent)

    async def request(
        self, method: str, target: str, body: Any = None, headers: Mapping[str, str] = JSON_TYPE
    ) -> Answered:
        async with asyncio.timeout(BOUND):
            return await answered(self.handle(method, target, body, headers))

    async def get(self, target: str) -> Answered:
        return await self.request("GET", target, None, {})

    async def post(
        self, target: str, body: Any = None, headers: Mapping[str, str] = JSON_TYPE
    ) -> Answered:
        return await self.request("POST", target, body, headers)

    # --- what most tests begin with ----------------------------------------------------

    async def push(self, *items: Mapping[str, Any], **headers: str) -> Any:
        answer = await self.post("/api/v1/push", {"items": items}, {**JSON_TYPE, **headers})
        assert answer.status == 201, answer
        return answer.json

    async def push_payloads(self, queue: str, *payloads: Any, partition: str = "Default") -> Any:
        return await self.push(
            *({"queue": queue, "partition": partition, "payload": payload} for payload in payloads)
        )

    async def pop(self, queue: str, query: str = "batch=100") -> Any:
        """What a pop got; None if there was nothing."""
        answer = await self.get(f"/api/v1/pop/queue/{queue}?{query}")
        if answer.status == 204:
            assert answer.body == b""
            return None
        assert answer.status == 200, answer
        return answer.json

    async def pop_soon(self, queue: str, query: str = "batch=100") -> Any:
        """What a pop gets that waits: after the clock was moved, what is due may just be in the
        hands of the lifecycle."""
        return await self.pop(queue, f"{query}&wait=true&timeout=20000")

    async def data(self, queue: str, query: str = "batch=100&autoAck=true") -> list[Any]:
        """The payloads that a pop got."""
        popped = await self.pop(queue, query)
        return [message["data"] for message in popped["messages"]] if popped else []

    async def configure(self, queue: str, kind: str = "ordered", **options: Any) -> Any:
        answer = await self.post(
            "/api/v1/configure", {"queue": queue, "kind": kind, "options": options}
        )
        assert answer.status == 200, answer
        return answer.json


def dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


async def answered(handled: Handled) -> Answered:
    """Carry an answer to its end, as the protocol does."""
    if asyncio.iscoroutine(handled):
        handled = await handled
    if isinstance(handled, Pending):
        told = handled.told
        assert told is not None
        try:
            handled = handled.finish(await handled.future)
        except Exception as error:  # noqa: BLE001 - as the protocol does
            handled = error_answer(error)
        told(handled)
    assert isinstance(handled, Response)
    headers = {name.decode(): value.decode() for name, value in handled.headers}
    assert handled.status != 204 or not handled.body
    return Answered(handled.status, handled.body, headers)


@asynccontextmanager
async def running_api(
    address: str,
    *,
    schema: str = "monarq",
    open_store: Callable[..., Awaitable[Store]] = open_store,
    **settings: Any,
) -> AsyncIterator[Api]:
    clock = ManualClock()
    chosen = Settings(**settings)
    broker = await Broker.start(
        lambda: open_store(address, clock=clock, schema=schema),
        chosen,
        clock=clock,
        buffer_dir=None,
        peers=None,
    )
    try:
        yield Api(Service(broker, chosen, clock.now(), "test", clock), clock)
    finally:
        await broker.close(5.0)


@asynccontextmanager
async def api_on(
    name: str, postgres_servers: Mapping[str, str], kept_connections: KeptConnections | None = None
) -> AsyncIterator[Api]:
    """Run the application on the kind of store with this name."""
    if name == "memory":
        async with running_api("memory:") as running:
            yield running
    else:
        dsn = postgres_servers[name]
        opener = kept_connections.open_store if kept_connections else open_store
        async with (
            empty_schema(dsn) as schema,
            running_api(dsn, schema=schema, open_store=opener) as running,
        ):
            yield running


@pytest.fixture(params=["memory", POSTGRES_NAMES[-1]])
async def api(
    request: pytest.FixtureRequest,
    postgres_servers: Mapping[str, str],
    kept_connections: KeptConnections,
) -> AsyncIterator[Api]:
    """On both kinds of store."""
    async with api_on(request.param, postgres_servers, kept_connections) as running:
        yield running


@pytest.fixture
async def memory_api() -> AsyncIterator[Api]:
    """For what no store has a part in."""
    async with running_api("memory:") as running:
        yield running
