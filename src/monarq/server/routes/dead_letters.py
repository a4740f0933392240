"""Dead letters: listing, redriving and purging them."""

from __future__ import annotations

from monarq.server.operations import routes_of

ROUTES = routes_of("dead letters")
