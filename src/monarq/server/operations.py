"""Serves operations over HTTP: their routes are derived from what they declare."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from msgspec import Raw

from monarq.operations import OPERATIONS, Operation
from monarq.operations import operation as declared
from monarq.operations.codec import encode
from monarq.operations.handlers import result_type
from monarq.operations.http import has_body, in_path, input_type
from monarq.server.exchange import Request, Response
from monarq.server.routing import Route
from monarq.server.service import Service

Handler = Callable[[Service, Request], Coroutine[Any, Any, Response]]


def routes_of(tag: str) -> tuple[Route, ...]:
    """Return the routes of all operations with this tag in the OpenAPI document."""
    return tuple(
        _route(operation, route)
        for operation in OPERATIONS
        if _tag(operation) == tag
        for route in operation.routes
    )


def _tag(operation: type[Operation[Any]]) -> str:
    """Return the name of the module that declares the operation, as in `dead letters`."""
    return operation.__module__.rpartition(".")[2].replace("_", " ")


def _route(operation: type[Operation[Any]], route: declared.Route) -> Route:
    given = input_type(operation, route)
    in_body = has_body(operation, route)
    name = operation.__name__
    return Route(
        method=route.method,
        path=route.path,
        handler=_handler(operation, route),
        operation=route.name or name[0].lower() + name[1:],
        summary=route.summary,
        tag=_tag(operation),
        role=route.role,
        query=None if in_body else given,
        body=given if in_body else None,
        needs_body=route.needs_body,
        answer=route.answer or result_type(operation),
        status=route.status,
        errors=route.errors,
    )


def _handler(operation: type[Operation[Any]], route: declared.Route) -> Handler:
    names = {info.encode_name: info.name for info in msgspec.structs.fields(operation)}
    path_names = {name: names[name] for name in in_path(route)}
    in_body = has_body(operation, route)

    async def handle(service: Service, request: Request) -> Response:
        fields: dict[str, Any] = {field: request.path[name] for name, field in path_names.items()}
        given = request.body if in_body else request.query
        body = given if isinstance(given, declared.Body) else None
        if body is not None:
            fields |= body.fields()
        elif given is not None:
            fields |= {name: _plain(getattr(given, name)) for name in given.__struct_fields__}
        asked = operation(**fields)
        trusted = asked.needs_commands()
        if trusted is not None:
            request.principal.check_may_run_commands(trusted)
        proven = asked.needs_proof()
        if proven is not None and not request.principal.is_proven:
            request.principal.check_may_run_commands(proven)
        may_run = request.principal.may_run_commands
        result = await service.broker.call(asked, commands=may_run)
        answer = asked.answer(route, result) if body is None else body.answer(asked, route, result)
        return Response(route.status, encode(answer))

    return handle


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, Raw) else value
