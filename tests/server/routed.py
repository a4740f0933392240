"""An application with routes of a test's own."""

from typing import Any

from monarq.server.app import Application
from monarq.server.exchange import Request, RequestHead, Response
from monarq.server.routing import Route
from monarq.server.service import Service
from tests.server.application import Answered, answered


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
