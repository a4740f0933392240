"""The overview: everything together, made of what is known already."""

from __future__ import annotations

from monarq.health import Health, State
from monarq.server.buffer_rows import buffer_answer
from monarq.server.watch.attention import attention
from monarq.server.watch.percentiles import of_latencies
from monarq.server.watch.sampler import Sight
from monarq.server.watch.views import BEHIND_SECONDS, View
from monarq.server.watch.workers import count_workers
from monarq.times import iso
from monarq.wire.dashboard import (
    HealthSight,
    HealthStatus,
    LagSight,
    LatencySight,
    OverviewSight,
    RatesSight,
    StoreHealth,
    TotalsSight,
)


def overview(
    sight: Sight, health: Health, *, now: int, version: str, is_postgres: bool
) -> OverviewSight:
    view = sight.view
    return OverviewSight(
        at=iso(view.now.at or now),
        version=version,
        health=_health(sight, health, is_postgres),
        workers=count_workers(sight.findings.workers),
        totals=_totals(view),
        rates=_rates(view),
        lag=_lag(view),
        latency=_latency(sight),
        attention=attention(view, health, sight.findings),
    )


def _health(sight: Sight, health: Health, is_postgres: bool) -> HealthSight:
    can_push = health.state in (State.SERVING, State.MAINTENANCE, State.STORE_DOWN)
    takes_pushes = can_push and (health.store_ok or health.buffer is not None)
    status: HealthStatus = "healthy" if health.store_ok else "degraded"
    if not takes_pushes:
        status = "unhealthy"
    return HealthSight(
        status=status,
        state=health.state,
        uptime_seconds=health.uptime_seconds,
        store=StoreHealth(
            kind="postgresql" if is_postgres else "sqlite",
            ok=health.store_ok,
            error=health.store_error,
            bytes=sight.store_bytes,
        ),
        buffer=buffer_answer(health.buffer),
        peers=health.peers,
        parked=health.parked,
        maintenance_push=health.maintenance_push,
        maintenance_pop=health.maintenance_pop,
    )


def _totals(view: View) -> TotalsSight:
    flows = view.now.queues.values()
    return TotalsSight(
        queues=len(view.now.queues),
        paused_queues=sum(flow.paused for flow in flows),
        partitions=sum(flow.partitions for flow in flows),
        groups=view.now.group_count(),
        stored=sum(flow.stored for flow in flows),
        pending=sum(flow.pending for flow in flows),
        dead_letters=sum(flow.dead_letters for flow in flows),
        pushed=sum(flow.pushed for flow in flows),
        completed=sum(flow.completed for flow in flows),
        failed=sum(flow.failed for flow in flows),
        dead=sum(flow.dead for flow in flows),
        scheduled=sum(flow.scheduled for flow in flows),
        ready=sum(flow.ready for flow in flows),
        leased=sum(flow.leased for flow in flows),
    )


def _rates(view: View) -> RatesSight:
    sums = [0.0, 0.0, 0.0, 0.0]
    for flow in view.now.queues.values():
        for place, rate in enumerate(view.queue_rates(flow)):
            sums[place] += rate
    rate_in, out, failed, dead = (round(one, 3) for one in sums)
    return RatesSight(in_=rate_in, out=out, failed=failed, dead=dead)


def _lag(view: View) -> LagSight:
    groups = [group for named in view.now.groups.values() for group in named.values()]
    behind = [view.lag_seconds(group) for group in groups if group.lag]
    return LagSight(
        messages=sum(group.lag for group in groups),
        seconds=max(behind, default=0.0),
        groups_behind=sum(seconds >= BEHIND_SECONDS for seconds in behind),
    )


def _latency(sight: Sight) -> LatencySight:
    found = of_latencies(sight.latencies)
    p50, p95, p99 = found if found is not None else (None, None, None)
    return LatencySight(p50=p50, p95=p95, p99=p99, samples=len(sight.latencies))
