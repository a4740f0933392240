"""Spans for OpenTelemetry, of every request to the API; an extra that is off by default.

Where they go is said by OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT,
OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME ...). It is imported only if it is on. A span is made once
its request was answered, so that the hot path carries nothing around.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from monarq.errors import SettingsError

if TYPE_CHECKING:
    from monarq.server.routing import Route

#: What the API's hot calls are in OpenTelemetry's words for messaging.
_OPERATIONS = {
    "/api/v1/push": "send",
    "/api/v1/transaction": "send",
    "/api/v1/ack": "settle",
    "/api/v1/ack/batch": "settle",
}
_UNTRACED = ("/metrics", "/health", "/docs", "/openapi.json")


class Spans:
    """Made once a process, after it was forked: it sends from a thread of its own."""

    def __init__(self, version: str, *, exporter: Any = None) -> None:
        """`exporter` replaces the one that the variables name."""
        try:
            from opentelemetry import trace
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise SettingsError("tracing: install it first: pip install 'monarq[otel]'") from None
        name = os.environ.get("OTEL_SERVICE_NAME", "monarq")
        resource = Resource.create({"service.name": name, "service.version": version})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or _exporter()))
        self._tracer = self._provider.get_tracer("monarq", version)
        self._extract = TraceContextTextMapPropagator().extract
        self._server = trace.SpanKind.SERVER
        self._error = trace.Status(trace.StatusCode.ERROR)

    def record(self, route: Route, headers: dict[str, str], status: int, seconds: float) -> None:
        """A span of a request that has just been answered."""
        path = route.path
        if path.startswith(_UNTRACED):
            return
        attributes: dict[str, str | int] = {
            "http.request.method": route.method,
            "http.route": path,
            "http.response.status_code": status,
        }
        operation = "receive" if path.startswith("/api/v1/pop") else _OPERATIONS.get(path)
        if operation is not None:
            attributes |= {"messaging.system": "monarq", "messaging.operation.type": operation}
        ended = time.time_ns()
        span = self._tracer.start_span(
            f"{route.method} {path}",
            context=self._extract(headers),
            kind=self._server,
            attributes=attributes,
            start_time=ended - int(seconds * 1e9),
        )
        if status >= 500:
            span.set_status(self._error)
        span.end(end_time=ended)

    def close(self) -> None:
        """Send what is left. Waits for the network: not for the loop's thread."""
        self._provider.shutdown()


def _exporter() -> Any:
    if os.environ.get("OTEL_TRACES_EXPORTER", "otlp") == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
