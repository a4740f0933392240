"""What the dashboard shows of everything together: the overview, charts, workers, the system."""

from __future__ import annotations

import contextlib
from typing import Any

from monarq.config import FIELDS
from monarq.errors import MonarqError, NotFoundError
from monarq.operations.operation import Role
from monarq.operations.records import STOP_KIND, WORKER_KIND
from monarq.places import without_password
from monarq.server.answers import json_answer
from monarq.server.buffer_rows import buffer_answer
from monarq.server.exchange import Request, Response
from monarq.server.process_figures import process_figures
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.server.watch.history import HOUR, slots
from monarq.server.watch.percentiles import of_histogram
from monarq.server.watch.series import series_of_all, series_of_queue
from monarq.server.watch.topics import overview_of
from monarq.server.watch.workers import read_schedules, read_workers
from monarq.times import iso
from monarq.wire.dashboard import (
    CallLine,
    ConnectionCounts,
    GrowthPoint,
    OverviewSight,
    SeriesAnswer,
    SeriesQuery,
    SettingRow,
    SettingsAnswer,
    StoreSight,
    SystemAnswer,
    WorkersAnswer,
    WorkerStopping,
)

_MONTH = 30 * 24 * HOUR
_STOP_REMEMBERED_SECONDS = 3600.0


async def get_overview(service: Service, request: Request) -> Response:
    # While the store is down, that is what there is to tell.
    with contextlib.suppress(MonarqError):
        await service.sampler.current()
    return json_answer(overview_of(service, service.sampler.sight))


async def get_series(service: Service, request: Request) -> Response:
    query: SeriesQuery = request.query
    store = service.broker.store
    sight = await service.sampler.current()
    if query.queue is None:
        return json_answer(await series_of_all(store, query.range, sight.view))
    await store.queue_settings(query.queue)
    return json_answer(await series_of_queue(store, query.range, sight.view, query.queue))


# --- workers ---------------------------------------------------------------------------------


async def get_workers(service: Service, request: Request) -> Response:
    store = service.broker.store
    now = service.now()
    return json_answer(
        WorkersAnswer(
            workers=await read_workers(store, now),
            schedules=await read_schedules(store),
            at=iso(now),
        )
    )


async def stop_worker(service: Service, request: Request) -> Response:
    worker = request.path["worker"]
    store = service.broker.store
    try:
        await store.get_record(WORKER_KIND, worker)
    except NotFoundError:
        raise NotFoundError(f"there is no worker {worker!r}") from None
    await store.put_record(STOP_KIND, worker, b"{}", keep_seconds=_STOP_REMEMBERED_SECONDS)
    return json_answer(WorkerStopping(stopping=True))


# --- the system ------------------------------------------------------------------------------


async def get_system(service: Service, request: Request) -> Response:
    now = service.now()
    store = service.broker.store
    health = service.broker.health()
    connections = service.metrics.connections
    return json_answer(
        SystemAnswer(
            at=iso(now),
            process=process_figures(service),
            connections=ConnectionCounts(
                open=connections.open,
                requests=connections.requests,
                streams=service.streams.open,
            ),
            store=StoreSight(
                kind="postgresql" if service.is_postgres else "sqlite",
                figures=await service.snapshots.figures.get(),
            ),
            calls=[_call(name, one) for name, one in service.broker.measures.calls().items()],
            slow=service.slow.newest(),
            growth=[
                GrowthPoint(at=iso(at), bytes=slot.store_bytes)
                for at, slot in _hourly(await slots(store, max(0, now - _MONTH), now))
            ],
            peers=health.peers,
            peer_addresses=list(service.settings.peers),
            buffer=buffer_answer(health.buffer),
            maintenance_push=health.maintenance_push,
            maintenance_pop=health.maintenance_pop,
        )
    )


def _hourly(found: list[Any]) -> list[Any]:
    """The last of each hour."""
    return list({at // HOUR: (at, slot) for at, slot in found}.values())


def _call(name: str, measure: Any) -> CallLine:
    seconds = measure.seconds
    p50, p95, p99 = of_histogram(seconds) or (None, None, None)
    return CallLine(
        call=name,
        calls=measure.calls,
        messages=measure.messages,
        errors=measure.errors,
        in_flight=measure.in_flight,
        mean_seconds=seconds.sum / seconds.total if seconds.total else 0.0,
        p50=p50,
        p95=p95,
        p99=p99,
    )


def get_settings(service: Service, request: Request) -> Response:
    return json_answer(SettingsAnswer(settings=[_setting(service, name) for name in FIELDS]))


def _setting(service: Service, name: str) -> SettingRow:
    known = FIELDS[name]
    value = getattr(service.settings, name)
    shown = value
    if known.secret:
        shown = "set" if value else ""
    elif name == "store":
        shown = without_password(value)
    return SettingRow(
        name=name,
        group=known.group,
        value=shown,
        default="" if known.secret else known.default,
        is_default=value == known.default,
        secret=known.secret,
        description=known.description,
        flag=known.flag,
        variable=known.variable,
    )


_DASHBOARD = "/api/v1/dashboard"

ROUTES = (
    Route(
        method="GET",
        path=f"{_DASHBOARD}/overview",
        handler=get_overview,
        operation="getDashboardOverview",
        summary="How everything is, and what needs attention",
        tag="dashboard",
        answer=OverviewSight,
    ),
    Route(
        method="GET",
        path=f"{_DASHBOARD}/series",
        handler=get_series,
        operation="getDashboardSeries",
        summary="Flow, backlog and latency over the last 15 minutes to 30 days",
        tag="dashboard",
        query=SeriesQuery,
        answer=SeriesAnswer,
        errors=(404,),
    ),
    Route(
        method="GET",
        path=f"{_DASHBOARD}/workers",
        handler=get_workers,
        operation="getDashboardWorkers",
        summary="Workers with what they run, and schedules",
        tag="dashboard",
        answer=WorkersAnswer,
    ),
    Route(
        method="POST",
        path=f"{_DASHBOARD}/workers/{{worker}}/stop",
        handler=stop_worker,
        summary="Ask a worker to finish what it runs, and stop",
        tag="dashboard",
        role=Role.JOBS,
        answer=WorkerStopping,
        errors=(404,),
    ),
    Route(
        method="GET",
        path=f"{_DASHBOARD}/system",
        handler=get_system,
        operation="getDashboardSystem",
        summary="The process that answers, the store, and how both fare",
        tag="dashboard",
        answer=SystemAnswer,
    ),
    Route(
        method="GET",
        path=f"{_DASHBOARD}/settings",
        handler=get_settings,
        operation="getDashboardSettings",
        summary="The settings in force, without the secrets",
        tag="dashboard",
        role=Role.ADMIN,
        answer=SettingsAnswer,
    ),
)
