"""Counts requests and their time by route. Called for every answer, so it does next to nothing."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from monarq.server.metric_families import Family, Labels, counter, histogram

if TYPE_CHECKING:
    from monarq.server.routing import Route

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)


class _RouteMeasure:
    """One route; `counts` as in `Counts` of the families."""

    __slots__ = ("bounds", "counts", "labels", "statuses", "sum")

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.bounds = BOUNDS
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0
        self.statuses: dict[int, int] = {}


class RequestMetrics:
    def __init__(self) -> None:
        # By the route's identity: routes live as long as the process.
        self._routes: dict[int, _RouteMeasure] = {}

    def observe(self, route: Route | None, status: int, seconds: float) -> None:
        """Count an answer; `route` is None where none matched."""
        measure = self._routes.get(id(route))
        if measure is None:
            labels = (route.method, route.path) if route is not None else ("", "unmatched")
            measure = self._routes[id(route)] = _RouteMeasure(labels)
        measure.counts[bisect_left(BOUNDS, seconds)] += 1
        measure.sum += seconds
        statuses = measure.statuses
        statuses[status] = statuses.get(status, 0) + 1

    def families(self) -> list[Family]:
        measures = list(self._routes.values())
        answers = [
            ((*measure.labels, str(status)), float(count))
            for measure in measures
            for status, count in sorted(measure.statuses.items())
        ]
        return [
            counter(
                "monarq_http_requests",
                "Requests that were answered, by route and status",
                answers,
                ("method", "route", "status"),
            ),
            histogram(
                "monarq_http_request_seconds",
                "Time from the whole request to the answer; of pops with the time they waited",
                [(measure.labels, measure) for measure in measures],
                ("method", "route"),
            ),
        ]
