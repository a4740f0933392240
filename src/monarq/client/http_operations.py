"""Sends operations over HTTP: the requests are derived from what the operations declare."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Raw

from monarq.ids import NumberText
from monarq.model.queue_options import OptionChanges
from monarq.operations import Operation
from monarq.operations.codec import enc_hook
from monarq.operations.handlers import result_type
from monarq.operations.http import has_body, in_path, json_fields
from monarq.operations.operation import Route
from monarq.operations.validation import validated
from monarq.times import Micros

R = TypeVar("R")
Call = Callable[..., Coroutine[Any, Any, Any]]
"""Sends a request and decodes its answer: method, path, type, and `query` or `body`."""


async def send(call: Call, request: Operation[R]) -> R:
    """Validate an operation, send it, and return its result."""
    request = validated(request)
    given = {
        info.encode_name: value
        for info in msgspec.structs.fields(request)
        if (value := getattr(request, info.name)) != info.default
    }
    route = _route(request, given)
    path = route.path
    for name in in_path(route):
        path = path.replace(f"{{{name}}}", quoted(str(given.pop(name))))
    in_body = has_body(type(request), route)
    raw = json_fields(type(request))
    values = {
        name: Raw(value) if name in raw else _on_wire(value, in_body)
        for name, value in given.items()
    }
    kind = route.answer or result_type(type(request))
    part = {"body": values} if in_body else {"query": values}
    return request.read(route, await call(route.method, path, kind, **part))


def _route(request: Operation[Any], given: dict[str, Any]) -> Route:
    """Return the route whose path names most of the given fields."""
    return max(
        (each for each in request.routes if all(name in given for name in in_path(each))),
        key=lambda each: len(in_path(each)),
    )


def quoted(name: str) -> str:
    """Return a name as one segment of a path. `.` and `..` would be taken for relative steps."""
    return "%2E" * len(name) if name in (".", "..") else quote(name, safe="")


def _on_wire(value: Any, in_body: bool) -> Any:
    if isinstance(value, list):
        return [_on_wire(one, in_body) for one in value]
    if isinstance(value, bool) and not in_body:
        return "true" if value else "false"
    return enc_hook(value) if isinstance(value, Micros | NumberText | OptionChanges) else value
