"""Consumer groups: how far they have come, moving and deleting them."""

from __future__ import annotations

from monarq.server.operations import routes_of

ROUTES = routes_of("groups")
