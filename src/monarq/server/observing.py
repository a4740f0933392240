"""Told of every answer: counts it, logs it where that is wanted, and makes a span of it.

Logs the route, never the URL or the headers: a name or a credential in them is nobody's business.
"""

from __future__ import annotations

import logging

from monarq.config import Settings
from monarq.server.request_metrics import RequestMetrics
from monarq.server.routing import Route
from monarq.server.slow_requests import SlowRequests
from monarq.server.tracing import Spans

logger = logging.getLogger("monarq.requests")


class Observer:
    def __init__(
        self,
        settings: Settings,
        requests: RequestMetrics,
        spans: Spans | None = None,
        slow: SlowRequests | None = None,
    ) -> None:
        self._count = requests.observe
        self._slow_seconds = settings.slow_request_ms / 1000
        self._spans = spans
        self._slow = slow
        self._is_debug = logger.isEnabledFor(logging.DEBUG)
        # Most answers are only counted.
        self._tells_from = 0.0 if self._is_debug or spans is not None else self._slow_seconds

    def observe(
        self, route: Route | None, headers: dict[str, str], status: int, seconds: float
    ) -> None:
        """After an answer: `route` is None where none matched."""
        self._count(route, status, seconds)
        if seconds >= self._tells_from:
            self._tell(route, headers, status, seconds)

    def _tell(
        self, route: Route | None, headers: dict[str, str], status: int, seconds: float
    ) -> None:
        if self._spans is not None and route is not None:
            self._spans.record(route, headers, status, seconds)
        is_slow = seconds >= self._slow_seconds and not _may_wait(route)
        if is_slow and self._slow is not None:
            self._slow.note(route, status, seconds)
        if self._is_debug:
            self._log(logging.DEBUG, "request", route, status, seconds)
        elif is_slow:
            self._log(logging.WARNING, "slow request", route, status, seconds)

    def _log(self, level: int, text: str, route: Route | None, status: int, seconds: float) -> None:
        fields = {
            "method": route.method if route else None,
            "route": route.path if route else None,
            "status": status,
            "ms": round(seconds * 1000, 3),
        }
        logger.log(level, text, extra={"fields": fields})


def _may_wait(route: Route | None) -> bool:
    """Pops take as long as they were told to wait, and streams as long as their reader."""
    return route is not None and route.path.startswith(("/api/v1/pop", "/api/v1/export"))
