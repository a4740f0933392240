"""The application: takes a request from the protocol, finds its route, checks who calls,
decodes what was sent, lets the route's handler answer, and makes an answer of every error.

Knows nothing of sockets, and of queues only what the routes' table says. How a handler is
written is shown by `routes/push.py`:

- it is a plain function of (service, request) that returns a `Response` or a `Pending`, or a
  coroutine function that returns a `Response` or a `StreamingResponse`;
- `request.query` and `request.body` are what the route's `query` and `body` types say, already
  checked; both are shared between equal requests, so a handler changes neither;
- it raises `MonarqError`s, which `answers.py` maps to statuses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import cache
from time import perf_counter
from typing import Any

from msgspec import Struct, structs

from monarq.errors import ForbiddenError, InvalidRequestError
from monarq.operations.operation import Role
from monarq.server.answers import HttpError, error_answer
from monarq.server.decoding import (
    body_decoder,
    check_no_body,
    ignoring_decoder,
    is_json,
    not_json,
    query_decoder,
)
from monarq.server.exchange import (
    UNAUTHENTICATED,
    Admission,
    Admitted,
    Answer,
    Handled,
    Pending,
    Principal,
    Request,
    RequestHead,
    Response,
    StreamingResponse,
)
from monarq.server.local_callers import ANYBODY, OWNER, nobody_is_proven
from monarq.server.routing import Route, Router, parameter_names
from monarq.server.same_origin import check_host, check_origin, check_token
from monarq.server.service import Service
from monarq.settings_checks import is_loopback
from monarq.wire.queen import IGNORED_HEADER, ignored_fields, ignored_parameters

Authenticate = Callable[[dict[str, str]], Principal | Awaitable[Principal]]
"""Says who calls, by the request's headers, or raises `UnauthorizedError`."""

Identify = Callable[[dict[str, str]], Principal]
"""Says who calls where authentication is off. Raises nothing."""

Observe = Callable[[Route | None, dict[str, str], int, float], None]
"""Told of every answer: its route (None if there is none), the request's headers, the status,
and the seconds from the whole request to the whole answer."""

_SMALL_BODY = 64 << 10
"""Bytes of a body that is sent without credentials, or to a call that takes none."""
_TRUSTED = Admission(ANYBODY)
_TRUSTED_SMALL = Admission(ANYBODY, _SMALL_BODY)
_OWNER = Admission(OWNER)
_OWNER_SMALL = Admission(OWNER, _SMALL_BODY)
_UNKNOWN = Admission(ANYBODY, _SMALL_BODY, UNAUTHENTICATED)
_RANKS = {role: rank for rank, role in enumerate(Role, 1)}
_TARGETS = 4096
_TARGET_LENGTH = 1024
_HOSTS = 64


class _Plan:
    """A route with its decoders."""

    __slots__ = (
        "body",
        "changes",
        "handler",
        "ignoring",
        "names",
        "query",
        "rank",
        "role",
        "route",
    )

    def __init__(self, route: Route) -> None:
        self.route = route
        self.handler = route.handler
        self.names = parameter_names(route.path)
        self.query = query_decoder(route.query, ignored_parameters(route.method, route.path))
        self.body = route.decode
        if self.body is None and route.body is not None:
            self.body = body_decoder(route.body)
        self.ignoring = None
        ignored = ignored_fields(route.method, route.path)
        if self.body is not None and ignored:
            self.ignoring = ignoring_decoder(self.body, ignored)
        self.role = route.role
        self.rank = _RANKS[route.role] if route.role is not None else 0
        # A pop is a GET, and changes something all the same.
        self.changes = route.role is not None and (
            route.method != "GET" or route.role is not Role.READ
        )


# Making the decoders takes 20 ms for all routes, and tests make hundreds of applications.
_plan = cache(_Plan)


class _Target:
    """What a method and target mean; kept, since clients ask for the same again and again."""

    __slots__ = ("ignored", "is_read", "path", "plan", "query", "raw_query")

    def __init__(self, plan: _Plan, path: dict[str, str], raw_query: str) -> None:
        self.plan = plan
        self.path = path
        self.raw_query = raw_query
        self.query: Any = None
        self.ignored: tuple[str, ...] = ()
        """Parameters that are taken and not used."""
        self.is_read = False


class _Meaning:
    """What a head asks for. Kept with it once all that depends on nothing else was found good."""

    __slots__ = ("is_json", "plan", "target")

    def __init__(self, target: _Target, headers: dict[str, str]) -> None:
        self.target = target
        self.plan = target.plan
        self.is_json = is_json(headers)


class _Call(Struct):
    """One request under way: makes its answer, and tells the observer of it."""

    observe: Observe | None
    headers: dict[str, str]
    started: float
    route: Route | None = None

    def settle(self, handled: Handled) -> Handled:
        """What the protocol gets for what the handler returned."""
        if isinstance(handled, Pending):
            handled.told = self.told
            return handled
        if asyncio.iscoroutine(handled):
            return self.run(handled)
        assert isinstance(handled, Response | StreamingResponse)
        self.told(handled)
        return handled

    def failed(self, error: BaseException) -> Response:
        response = error_answer(error)
        self.told(response)
        return response

    async def run(
        self, coroutine: Coroutine[Any, Any, Answer | Pending[Any]]
    ) -> Answer | Pending[Any]:
        try:
            handled = await coroutine
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            return self.failed(error)
        settled = self.settle(handled)
        assert not asyncio.iscoroutine(settled)
        return settled

    def told(self, answer: Answer) -> None:
        if self.observe is not None:
            self.observe(self.route, self.headers, answer.status, perf_counter() - self.started)


class Application:
    def __init__(
        self,
        service: Service,
        routes: Iterable[Route],
        *,
        authenticate: Authenticate | None = None,
        identify: Identify = nobody_is_proven,
        observe: Observe | None = None,
    ) -> None:
        self._service = service
        self._router = Router(routes)
        self._plans = {id(route): _plan(route) for route in self._router.routes}
        self._authenticate = authenticate
        self._identify = identify
        self._observe = observe
        self._targets: dict[tuple[str, str], _Target] = {}
        settings = service.settings
        self._checks_hosts = (
            authenticate is None and not settings.insecure and is_loopback(settings.host)
        )
        self._hosts: set[str | None] = set()
        """Good ones, kept as the targets are."""

    def admit(self, head: RequestHead) -> Admitted | Coroutine[Any, Any, Admitted]:
        """Check everything about a request that its head tells, before its body is read.

        Return what the body may be, or the response that refuses it. Never raises, and neither
        does the coroutine (unless it is cancelled).
        """
        call = _Call(self._observe, head.headers, perf_counter())
        try:
            meaning = self._meaning(head)
            if meaning is None:
                return _TRUSTED_SMALL if self._authenticate is None else _UNKNOWN
            plan = meaning.plan
            call.route = plan.route
            if self._authenticate is None:
                principal = ANYBODY if plan.role is None else self._identify(head.headers)
                self._check(meaning, principal, head)
                if principal.is_proven:
                    return _OWNER if plan.body is not None else _OWNER_SMALL
                return _TRUSTED if plan.body is not None else _TRUSTED_SMALL
            if plan.role is None:
                self._check(meaning, ANYBODY, head)
                return _UNKNOWN
            found = self._authenticate(head.headers)
            if isinstance(found, Principal):
                return self._admission(meaning, found, head)
            return self._admit_later(call, meaning, found, head)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            return call.failed(error)

    async def _admit_later(
        self, call: _Call, meaning: _Meaning, principal: Awaitable[Principal], head: RequestHead
    ) -> Admitted:
        try:
            return self._admission(meaning, await principal, head)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            return call.failed(error)

    def _admission(self, meaning: _Meaning, principal: Principal, head: RequestHead) -> Admission:
        self._check(meaning, principal, head)
        most = None if meaning.plan.body is not None else _SMALL_BODY
        return Admission(principal, most, f"principal {principal.subject}")

    def handle(self, head: RequestHead, body: bytes, admission: Admission | None = None) -> Handled:
        """Answer a request; `admission` is what `admit` returned, if the body came later.

        Never raises, and neither does a coroutine that it returns (unless it is cancelled).
        """
        call = _Call(self._observe, head.headers, perf_counter())
        try:
            meaning: _Meaning | None = head.meaning
            if meaning is None:
                meaning = self._meaning(head)
                if meaning is None:
                    return call.settle(self._options(head.target))
            call.route = meaning.plan.route
            if admission is not None:
                return call.settle(self._serve(meaning, admission.principal, head, body))
            if meaning.plan.role is None:
                if self._authenticate is not None and len(body) > _SMALL_BODY:
                    # Like a body that comes after its head; see `admit`.
                    raise HttpError(
                        413,
                        "body_too_large",
                        f"a body of {len(body)} bytes; at most {_SMALL_BODY} are taken",
                    )
                return call.settle(self._answer(meaning, ANYBODY, head, body))
            if self._authenticate is None:
                return call.settle(self._answer(meaning, self._identify(head.headers), head, body))
            principal = self._authenticate(head.headers)
            if isinstance(principal, Principal):
                return call.settle(self._answer(meaning, principal, head, body))
            return call.run(self._answer_later(meaning, principal, head, body))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            return call.failed(error)

    def _meaning(self, head: RequestHead) -> _Meaning | None:
        """Return what a head asks for, or None for OPTIONS, which has no route."""
        meaning: _Meaning | None = head.meaning
        if meaning is not None:
            return meaning
        if self._checks_hosts and head.headers.get("host") not in self._hosts:
            self._check_host(head.headers)
        if head.method == "OPTIONS":
            return None
        return _Meaning(self._find(head.method, head.target), head.headers)

    def _check_host(self, headers: dict[str, str]) -> None:
        check_host(headers)
        if len(self._hosts) >= _HOSTS:
            self._hosts.clear()
        self._hosts.add(headers.get("host"))

    def _answer(
        self, meaning: _Meaning, principal: Principal, head: RequestHead, body: bytes
    ) -> Handled:
        self._check(meaning, principal, head)
        return self._serve(meaning, principal, head, body)

    def _check(self, meaning: _Meaning, principal: Principal, head: RequestHead) -> None:
        """Refuse a caller without the route's role, a page of another site, and a bad query."""
        plan = meaning.plan
        if plan.role is not None and _RANKS[principal.role] < plan.rank:
            raise ForbiddenError(f"this call needs the role {plan.role}, not {principal.role}")
        if plan.role is Role.JOBS:
            principal.check_may_run_commands("this call")
        if plan.changes:
            if head.meaning is None:
                check_origin(head.headers)
            if principal.csrf_token is not None:
                check_token(head.headers, principal)
        target = meaning.target
        if head.meaning is None:
            # Only now, so that who may not call learns nothing.
            if not target.is_read:
                self._read_query(target, head)
            head.meaning = meaning

    def _serve(
        self, meaning: _Meaning, principal: Principal, head: RequestHead, body: bytes
    ) -> Handled:
        plan = meaning.plan
        target = meaning.target
        decoded = None
        ignored = target.ignored
        if body and not meaning.is_json:
            raise not_json(head.headers)
        if plan.body is not None:
            try:
                decoded = plan.body(body)
            except InvalidRequestError as error:
                without = None if plan.ignoring is None else plan.ignoring(body, error)
                if without is None:
                    raise
                decoded, fields = without
                ignored += fields
        elif body:
            check_no_body(body)
        handled = plan.handler(
            self._service,
            Request(target.path, target.query, decoded, head.headers, principal, len(body)),
        )
        return _naming(ignored, handled) if ignored else handled

    async def _answer_later(
        self, meaning: _Meaning, principal: Awaitable[Principal], head: RequestHead, body: bytes
    ) -> Answer | Pending[Any]:
        """For a caller who is not known at once, such as by a token not seen before."""
        handled = self._answer(meaning, await principal, head, body)
        return await handled if asyncio.iscoroutine(handled) else handled

    def _options(self, target: str) -> Response:
        if target == "*":
            return Response(204)
        path, _ = _split(target)
        routes, _ = self._routes(path)
        return Response(204, headers=((b"Allow", _methods(routes).encode()),))

    def _routes(self, path: str) -> tuple[dict[str, Route], list[str]]:
        found = self._router.find(path)
        if found is None:
            raise HttpError(404, "not_found", f"there is no {path[:200]!r}; see /docs")
        return found

    def _find(self, method: str, target: str) -> _Target:
        known = self._targets.get((method, target))
        if known is not None:
            return known
        path, raw_query = _split(target)
        routes, parameters = self._routes(path)
        route = _safe_get(routes) if method == "HEAD" else routes.get(method)
        if route is None:
            allowed = _methods(routes)
            raise HttpError(
                405,
                "method_not_allowed",
                f"{path[:200]!r} takes {allowed}, not {method[:20]}",
                ((b"Allow", allowed.encode()),),
            )
        plan = self._plans[id(route)]
        return _Target(plan, dict(zip(plan.names, parameters, strict=True)), raw_query)

    def _read_query(self, found: _Target, head: RequestHead) -> None:
        """Kept if it was good."""
        found.query, found.ignored = found.plan.query(found.raw_query)
        found.is_read = True
        if len(head.target) <= _TARGET_LENGTH:
            if len(self._targets) >= _TARGETS:
                self._targets.clear()
            self._targets[head.method, head.target] = found


def _naming(ignored: tuple[str, ...], handled: Handled) -> Handled:
    """Add the header that names what the request sent in vain."""
    header = (IGNORED_HEADER.encode(), ", ".join(ignored).encode())

    def named(answer: Answer) -> Any:
        return structs.replace(answer, headers=(*answer.headers, header))

    if isinstance(handled, Pending):
        finish = handled.finish
        handled.finish = lambda result: named(finish(result))
        return handled
    if asyncio.iscoroutine(handled):

        async def later() -> Any:
            return _naming(ignored, await handled)

        return later()
    assert isinstance(handled, Response | StreamingResponse)
    answer: Answer = named(handled)
    return answer


def _split(target: str) -> tuple[str, str]:
    """Path and query, also of `http://host/path?query`, which proxies may send."""
    path, _, query = target.partition("?")
    if path.startswith("/"):
        return path, query
    scheme, separator, rest = path.partition("://")
    if not separator or scheme.lower() not in ("http", "https"):
        raise HttpError(400, "invalid_request", f"{target[:200]!r} is no path")
    slash = rest.find("/")
    return (rest[slash:] if slash >= 0 else "/"), query


def _safe_get(routes: dict[str, Route]) -> Route | None:
    """The GET that HEAD stands for: not a pop, which leases what nobody would see."""
    route = routes.get("GET")
    return route if route is not None and route.role in (None, Role.READ) else None


def _methods(routes: dict[str, Route]) -> str:
    names = {*routes, "OPTIONS"}
    if _safe_get(routes) is not None:
        names.add("HEAD")
    return ", ".join(sorted(names))
