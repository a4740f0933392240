"""The metrics, as JSON for programs and as text for Prometheus."""

from __future__ import annotations

from typing import Any

from monarq.clock import SystemClock
from monarq.operations.operation import Role
from monarq.server.answers import json_answer
from monarq.server.exchange import Request, Response
from monarq.server.metric_families import as_json, as_text
from monarq.server.routing import Route
from monarq.server.service import Service

TEXT = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(service: Service, _: Request) -> Response:
    return json_answer(as_json(await service.metrics.families(), SystemClock().now()))


async def prometheus(service: Service, _: Request) -> Response:
    return Response(200, as_text(await service.metrics.families()), TEXT.encode())


ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/metrics",
        handler=metrics,
        operation="getMetrics",
        summary="Everything that is measured, by name",
        tag="metrics",
        role=Role.READ,
        answer=dict[str, Any],
    ),
    Route(
        method="GET",
        path="/metrics/prometheus",
        handler=prometheus,
        operation="getPrometheusMetrics",
        summary="The same in Prometheus' text format",
        tag="metrics",
        role=Role.READ,
        content_type=TEXT,
    ),
)
