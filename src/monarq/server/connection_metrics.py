"""What the HTTP connections are up to, as metrics."""

from __future__ import annotations

from monarq.server.http import Counters
from monarq.server.metric_families import Family, counter, gauge


def connection_families(counters: Counters) -> list[Family]:
    def total(name: str, text: str, value: int) -> Family:
        return counter(f"monarq_http_{name}", text, [((), float(value))])

    return [
        gauge("monarq_http_connections", "Open connections", [((), float(counters.open))]),
        total("connections_accepted", "Connections that were opened", counters.accepted),
        total(
            "connections_turned_away",
            "Connections over the limit, or while the server shut down",
            counters.turned_away,
        ),
        total("malformed_requests", "Requests that were no proper HTTP", counters.refused),
        total("slow_clients", "Connections cut because the client was slow", counters.timed_out),
        total(
            "abandoned_requests",
            "Requests whose client went away before the answer",
            counters.abandoned,
        ),
    ]
