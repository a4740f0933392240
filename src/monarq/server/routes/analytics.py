"""What happened over time, and how the processes and the database behind it fare."""

from __future__ import annotations

import os
import socket

from monarq.broker.measures import CallMeasure, Histogram
from monarq.clock import SECOND
from monarq.model import Page
from monarq.model.pages import walk
from monarq.server.analytics import Span, activity, activity_by_queue
from monarq.server.answers import json_answer
from monarq.server.exchange import Request, Response
from monarq.server.paging import paged
from monarq.server.parameters import time_or_none
from monarq.server.process_figures import process_figures
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.store.collecting import collect
from monarq.store.contract import Store
from monarq.times import iso
from monarq.wire.status import (
    AnalyticsAnswer,
    AnalyticsQuery,
    CallFigures,
    DistributionFigures,
    Interval,
    LagAnswer,
    LagQuery,
    LagRow,
    OpsAnswer,
    OpsQuery,
    ParkedAnswer,
    ParkedPoint,
    QueueOps,
    Replica,
    RetentionAnswer,
    RetentionFigures,
    RetentionPoint,
    StoreStatsAnswer,
    SystemMetricsAnswer,
    TimeRange,
    WorkerMetricsAnswer,
)

_DAY = 86_400 * SECOND
_HOUR = 3_600 * SECOND


# --- queues over time ------------------------------------------------------------------------


async def over_time(service: Service, request: Request) -> Response:
    query: AnalyticsQuery = request.query
    store = service.broker.store
    span = _span(service, query.interval, query.from_, query.to, _DAY)
    names = None
    if query.queue is not None:
        await store.queue_settings(query.queue)
    elif query.namespace is not None or query.task is not None:
        names = await _labelled(store, query.namespace, query.task)
    points = await activity(
        store, span, queue=query.queue, wanted=None if names is None else names.__contains__
    )
    return json_answer(
        AnalyticsAnswer(
            interval=query.interval, from_=iso(span.since), to=iso(span.until), data_points=points
        )
    )


async def _labelled(store: Store, namespace: str | None, task: str | None) -> set[str]:
    return {
        queue.name
        async for queue in walk(
            lambda limit, after: store.list_queues(
                namespace=namespace, task=task, limit=limit, after=after
            )
        )
    }


def _span(
    service: Service, interval: Interval, since: str | None, until: str | None, length: int
) -> Span:
    end = time_or_none(until, "to")
    end = service.now() if end is None else end
    begin = time_or_none(since, "from")
    return Span(interval, max(0, end - length) if begin is None else begin, end)


async def queue_ops(service: Service, request: Request) -> Response:
    query: OpsQuery = request.query
    store = service.broker.store
    span = _span(service, query.interval, query.from_, query.to, _HOUR)
    if query.queue is not None:
        queues = Page([await store.get_queue(query.queue)])
    else:
        queues = await store.list_queues(limit=query.limit, after=query.after)
    found = await activity_by_queue(store, span, [queue.name for queue in queues.rows])
    return json_answer(
        OpsAnswer(
            interval=query.interval,
            from_=iso(span.since),
            to=iso(span.until),
            queues=[QueueOps(queue=name, data_points=points) for name, points in found.items()],
            next=queues.next,
        )
    )


async def queue_lag(service: Service, request: Request) -> Response:
    query: LagQuery = request.query
    store = service.broker.store
    page = await collect(
        lambda limit, after: store.list_groups(queue=query.queue, limit=limit, after=after), query
    )
    rows = [
        LagRow(
            queue=group.queue,
            consumer_group=group.name,
            lag=group.lag,
            lag_seconds=group.lag_seconds,
        )
        for group in page.rows
    ]
    return json_answer(LagAnswer(lag=rows, **paged(query, page)))


# --- processes and the database --------------------------------------------------------------


def system_metrics(service: Service, request: Request) -> Response:
    return json_answer(
        SystemMetricsAnswer(timestamp=iso(service.now()), process=process_figures(service))
    )


def worker_metrics(service: Service, request: Request) -> Response:
    broker = service.broker
    measures = broker.measures
    return json_answer(
        WorkerMetricsAnswer(
            timestamp=iso(service.now()),
            hostname=socket.gethostname(),
            pid=os.getpid(),
            state=broker.state,
            calls={kind: _call_figures(one) for kind, one in measures.calls().items()},
            pops={
                **measures.pop_steps,
                "pending": measures.pops_pending,
                "leasing": measures.pops_leasing,
                "parked": measures.pops_parked,
            },
            wakes=dict(measures.wakes),
            lifecycle={
                **measures.lifecycle_done,
                "steps": measures.lifecycle_steps,
                "failures": measures.lifecycle_failures,
            },
            overloaded=measures.overloaded,
            store_failures=measures.store_failures,
            buffered=measures.buffered,
            replayed=measures.replayed,
        )
    )


def _call_figures(measure: CallMeasure) -> CallFigures:
    return CallFigures(
        calls=measure.calls,
        messages=measure.messages,
        errors=measure.errors,
        in_flight=measure.in_flight,
        batch_calls=_distribution(measure.batch_calls),
        batch_messages=_distribution(measure.batch_messages),
        store_seconds=_distribution(measure.seconds),
    )


def _distribution(histogram: Histogram) -> DistributionFigures:
    names = [*(f"{bound:g}" for bound in histogram.bounds), "more"]
    return DistributionFigures(
        count=histogram.total,
        mean=histogram.sum / histogram.total if histogram.total else 0.0,
        buckets=dict(zip(names, histogram.counts, strict=True)),
    )


def parked(service: Service, request: Request) -> Response:
    now = iso(service.now())
    hostname, pid = socket.gethostname(), os.getpid()
    return json_answer(
        ParkedAnswer(
            time_range=TimeRange(from_=now, to=now),
            series=[
                ParkedPoint(
                    bucket=now,
                    queue_name=None,
                    hostname=hostname,
                    worker_id=pid,
                    parked_count=service.broker.measures.pops_parked,
                )
            ],
            replicas=[Replica(hostname=hostname, worker_id=pid)],
        )
    )


def retention(service: Service, request: Request) -> Response:
    now = service.now()
    started = now - round(service.broker.health().uptime_seconds * SECOND)
    removed = service.broker.measures.lifecycle_done["removed"]
    return json_answer(
        RetentionAnswer(
            time_range=TimeRange(from_=iso(max(0, started)), to=iso(now)),
            series=[RetentionPoint(bucket=iso(now), total_msgs=removed)],
            totals=RetentionFigures(total_msgs=removed),
        )
    )


async def store_stats(service: Service, request: Request) -> Response:
    figures = await service.snapshots.figures.get()
    return json_answer(
        StoreStatsAnswer(
            available=figures["store"] == "postgresql",
            timestamp=iso(service.now()),
            figures=figures,
        )
    )


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/status/analytics",
        handler=over_time,
        operation="getAnalytics",
        summary="What was pushed, completed, failed and died, by minute, hour or day",
        tag="analytics",
        query=AnalyticsQuery,
        answer=AnalyticsAnswer,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/api/v1/analytics/queue-ops",
        handler=queue_ops,
        operation="getQueueOps",
        summary="The same, queue by queue",
        tag="analytics",
        query=OpsQuery,
        answer=OpsAnswer,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/api/v1/analytics/queue-lag",
        handler=queue_lag,
        operation="getQueueLag",
        summary="The lag of each group, in messages and in seconds",
        tag="analytics",
        query=LagQuery,
        answer=LagAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/analytics/system-metrics",
        handler=system_metrics,
        operation="getSystemMetrics",
        summary="CPU, memory and files of the process that answers",
        tag="analytics",
        answer=SystemMetricsAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/analytics/worker-metrics",
        handler=worker_metrics,
        operation="getWorkerMetrics",
        summary="What the broker of the process that answers has done",
        tag="analytics",
        answer=WorkerMetricsAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/analytics/queue-parked-replicas",
        handler=parked,
        operation="getParked",
        summary="How many pops wait at the process that answers, as Queen's clients ask for it",
        tag="analytics",
        answer=ParkedAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/analytics/retention",
        handler=retention,
        operation="getRetention",
        summary="What the process that answers has removed, as Queen's clients ask for it",
        tag="analytics",
        answer=RetentionAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/analytics/postgres-stats",
        handler=store_stats,
        operation="getStoreStats",
        summary="How the database fares: size, connections, dead tuples, oldest xmin",
        tag="analytics",
        answer=StoreStatsAnswer,
    ),
)
