"""Items of work queues: listing, describing, cancelling and retrying them; their output."""

from __future__ import annotations

from monarq.server.operations import routes_of

ROUTES = routes_of("items")
