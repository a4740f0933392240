"""What the API is, for people and for programs. The page loads nothing from elsewhere. What takes
a while to make is made once, and not on the loop."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Any

import msgspec

from monarq.server.exchange import Request, Response
from monarq.server.openapi import openapi
from monarq.server.reference_page import reference_page
from monarq.server.routing import Route
from monarq.server.service import Service

HTML = b"text/html; charset=utf-8"
_HEADERS = (
    (
        b"Content-Security-Policy",
        b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    ),
    (b"X-Content-Type-Options", b"nosniff"),
)


async def docs(service: Service, request: Request) -> Response:
    page = await asyncio.to_thread(_reference, service.version)
    return Response(200, page, HTML, _HEADERS)


async def description(service: Service, request: Request) -> Response:
    return Response(200, await asyncio.to_thread(_description, service.version))


def _all_routes() -> tuple[Route, ...]:
    # Imported here: the table of all routes holds this module's own.
    from monarq.server.routes import ROUTES

    return ROUTES


@lru_cache(maxsize=1)
def _description(version: str) -> bytes:
    return msgspec.json.encode(openapi(_all_routes(), version=version))


@lru_cache(maxsize=1)
def _reference(version: str) -> bytes:
    return reference_page(openapi(_all_routes(), version=version)).encode()


ROUTES = (
    Route(
        method="GET",
        path="/docs",
        handler=docs,
        operation="getReference",
        summary="The API, for people",
        tag="pages",
        role=None,
        content_type="text/html; charset=utf-8",
    ),
    Route(
        method="GET",
        path="/openapi.json",
        handler=description,
        operation="getOpenapi",
        summary="The API, for programs: OpenAPI 3.1",
        tag="pages",
        role=None,
        answer=dict[str, Any],
    ),
)
