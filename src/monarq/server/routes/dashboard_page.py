"""The dashboard's page and its files. They hold no data, so anyone may load them; everything that
they show comes from the API, which asks who calls."""

from __future__ import annotations

import asyncio

from monarq.server.answers import Headers, HttpError
from monarq.server.dashboard_files import INDEX, DashboardFile, DashboardFiles
from monarq.server.exchange import Handled, Request, Response
from monarq.server.routing import Route
from monarq.server.service import Service

_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; font-src 'self'; manifest-src 'self'; frame-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"Content-Security-Policy", _POLICY),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Referrer-Policy", b"no-referrer"),
    (b"Cross-Origin-Opener-Policy", b"same-origin"),
    (b"Cross-Origin-Resource-Policy", b"same-origin"),
    (b"Cache-Control", b"no-cache"),
    (b"Vary", b"Accept-Encoding"),
)

_files = DashboardFiles()


def page(service: Service, request: Request) -> Handled:
    return _answer(INDEX, request)


def asset(service: Service, request: Request) -> Handled:
    return _answer(request.path["path"], request)


def _answer(path: str, request: Request) -> Handled:
    file = _files.known(path)
    return _read(path, request) if file is None else _send(file, request)


async def _read(path: str, request: Request) -> Response:
    file = await asyncio.to_thread(_files.read, path)
    if file is None:
        raise HttpError(404, "not_found", f"the dashboard has no file {path[:200]!r}")
    return _send(file, request)


def _send(file: DashboardFile, request: Request) -> Response:
    body, tag = file.body, file.tag
    headers: Headers = _HEADERS
    if file.compressed is not None and _takes_gzip(request.headers.get("accept-encoding", "")):
        body, tag = file.compressed, file.compressed_tag
        headers = (*headers, (b"Content-Encoding", b"gzip"))
    headers = (*headers, (b"ETag", tag))
    known = request.headers.get("if-none-match", "")
    if known == "*" or tag.decode() in _tags(known):
        return Response(304, b"", file.content_type, headers)
    return Response(200, body, file.content_type, headers)


def _takes_gzip(accepted: str) -> bool:
    for one in accepted.lower().split(","):
        name, _, weight = one.partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _tags(known: str) -> set[str]:
    return {one.strip().removeprefix("W/") for one in known.split(",")}


ROUTES = (
    Route(
        method="GET",
        path="/",
        handler=page,
        operation="getPage",
        summary="The dashboard",
        tag="pages",
        role=None,
        content_type="text/html; charset=utf-8",
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/dashboard/{path}",
        handler=asset,
        operation="getAsset",
        summary="A file of the dashboard; the path may have several segments",
        tag="pages",
        role=None,
        content_type="text/javascript; charset=utf-8",
        errors=(404,),
        is_deep=True,
    ),
)
