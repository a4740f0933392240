"""Records beside the queues: workers, schedules, runs."""

from __future__ import annotations

from monarq.server.operations import routes_of

ROUTES = routes_of("records")
