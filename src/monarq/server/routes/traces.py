"""Traces: notes that consumers leave about a message, found by message or by name."""

from __future__ import annotations

from monarq.server.operations import routes_of

ROUTES = routes_of("traces")
