"""The operations of the API: a module a group, each with its table `ROUTES`, joined here."""

from __future__ import annotations

from monarq.server.routes import (
    ack,
    analytics,
    configure,
    dead_letters,
    export,
    groups,
    items,
    jobs,
    lease,
    messages,
    metrics,
    outputs,
    pages,
    pop,
    push,
    queues,
    records,
    status,
    system,
    traces,
    transaction,
)
from monarq.server.routing import Route

ROUTES: tuple[Route, ...] = (
    *push.ROUTES,
    *pop.ROUTES,
    *ack.ROUTES,
    *transaction.ROUTES,
    *lease.ROUTES,
    *configure.ROUTES,
    *queues.ROUTES,
    *messages.ROUTES,
    *items.ROUTES,
    *outputs.ROUTES,
    *jobs.ROUTES,
    *dead_letters.ROUTES,
    *groups.ROUTES,
    *traces.ROUTES,
    *records.ROUTES,
    *status.ROUTES,
    *analytics.ROUTES,
    *metrics.ROUTES,
    *system.ROUTES,
    *export.ROUTES,
    *pages.ROUTES,
)
