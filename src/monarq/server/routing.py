"""The table of routes, and finding the one that a request is for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from monarq.errors import InvalidRequestError
from monarq.operations.operation import Role
from monarq.server.exchange import Handled, Request
from monarq.server.service import Service

Handler = Callable[[Service, Request], Handled]

_REST = "/"
"""In the tree of segments, where a deep route takes what is left."""


class Route(Struct, frozen=True, kw_only=True):
    """One operation of the API, with all that its documentation says of it."""

    method: str
    path: str
    """As in `/api/v1/pop/queue/{queue}`; a parameter is one segment of the path."""
    handler: Handler
    summary: str
    tag: str
    operation: str = ""
    """Its name in clients that are generated; the handler's name if it is left out."""
    role: Role | None = Role.READ
    """The least that a caller must be allowed; None for what anyone may see."""
    query: type[Struct] | None = None
    body: Any = None
    """The type of the JSON body; None if there is none."""
    needs_body: bool = True
    """Whether an empty body, which counts as an object without fields, is always refused."""
    decode: Callable[[bytes], Any] | None = None
    """Reads the body where decoding it as `body` would not do; raises `InvalidRequestError`."""
    answer: Any = None
    """The type of the JSON answer; None if there is none, or it is no JSON."""
    status: int = 200
    """Of a good answer."""
    empty: bool = False
    """Whether it may also answer 204."""
    content_type: str = "application/json"
    errors: tuple[int, ...] = ()
    """Statuses of errors particular to it, besides 400, 401, 403, 413, 415 and 503."""
    is_deep: bool = False
    """Whether its last parameter is all that is left of the path, slashes too."""

    @property
    def operation_id(self) -> str:
        first, *more = self.handler.__name__.split("_")
        return self.operation or first + "".join(word.capitalize() for word in more)


class Router:
    """Finds a route by method and path. Literal segments win over parameters."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._literal: dict[str, dict[str, Route]] = {}
        self._tree: dict[str, Any] = {}
        for route in self.routes:
            if "{" not in route.path:
                self._literal.setdefault(route.path, {})[route.method] = route
            node = self._tree
            segments = route.path[1:].split("/")
            if route.is_deep:
                segments[-1] = _REST
            for segment in segments:
                node = node.setdefault("{}" if segment.startswith("{") else segment, {})
            node.setdefault("", {})[route.method] = route

    def find(self, path: str) -> tuple[dict[str, Route], list[str]] | None:
        """The routes of this (still percent-encoded) path by method, and its parameters in
        order; None if there is no such path."""
        literal = self._literal.get(path)
        if literal is not None:
            return literal, []
        return self._descend(self._tree, path[1:].split("/"), 0, [])

    def _descend(
        self, node: dict[str, Any], segments: list[str], at: int, parameters: list[str]
    ) -> tuple[dict[str, Route], list[str]] | None:
        if at == len(segments):
            routes = node.get("")
            return (routes, parameters) if routes else None
        segment = segments[at]
        child = node.get(segment) if segment else None
        found = child and self._descend(child, segments, at + 1, parameters)
        if not found and segment and "{}" in node:
            found = self._descend(
                node["{}"], segments, at + 1, [*parameters, decode_segment(segment)]
            )
        if not found and segment and _REST in node:
            rest = "/".join(map(decode_segment, segments[at:]))
            found = node[_REST][""], [*parameters, rest]
        return found or None


def parameter_names(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def decode_segment(segment: str) -> str:
    """Percent-decoded UTF-8; a name may hold anything that can be pushed to, also a slash."""
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise InvalidRequestError(f"{segment[:100]!r} in the path is not UTF-8") from None
