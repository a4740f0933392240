"""The operations of the API: a module a group, each with its table `ROUTES`, joined here."""

from __future__ import annotations

from monarq.server.routes import ack, configure, lease, pop, push, transaction
from monarq.server.routing import Route

ROUTES: tuple[Route, ...] = (
    *push.ROUTES,
    *pop.ROUTES,
    *ack.ROUTES,
    *transaction.ROUTES,
    *lease.ROUTES,
    *configure.ROUTES,
)
