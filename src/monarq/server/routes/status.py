"""How the broker and its queues are, now."""

from __future__ import annotations

from msgspec import structs

from monarq.errors import NotFoundError
from monarq.health import Health, State
from monarq.model import QueueFlow, QueueInfo
from monarq.operations.http import input_type
from monarq.operations.operation import Role
from monarq.operations.queues import ListQueues
from monarq.server.answers import json_answer
from monarq.server.buffer_rows import buffer_answer
from monarq.server.exchange import Request, Response
from monarq.server.paging import paged
from monarq.server.parameters import path_name
from monarq.server.queue_totals import Totals, add_up
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.times import iso
from monarq.wire.status import (
    BufferAnswer,
    DetailQuery,
    HealthAnswer,
    QueueDetailAnswer,
    QueueStatusAnswer,
    QueueStatusRow,
    Refreshed,
    StatusAnswer,
    StatusQuery,
    StatusQueueRow,
)


def health(service: Service, request: Request) -> Response:
    found = service.broker.health()
    can_push = found.state in (State.SERVING, State.MAINTENANCE, State.STORE_DOWN)
    takes_pushes = can_push and (found.store_ok or found.buffer is not None)
    status = 200 if takes_pushes else 503
    answer = HealthAnswer(
        status="unhealthy" if status == 503 else "healthy" if found.store_ok else "degraded",
        state=found.state,
        store="connected" if found.store_ok else "disconnected",
        database="connected" if found.store_ok else "disconnected",
        version=service.version,
        uptime_seconds=found.uptime_seconds,
        timestamp=iso(service.now()),
    )
    return json_answer(answer, status)


async def status(service: Service, request: Request) -> Response:
    query: StatusQuery = request.query
    found = service.broker.health()
    totals = Totals()
    rows: list[StatusQueueRow] = []
    if found.store_ok:
        totals, rows = await _queues(service, query)
    return json_answer(
        StatusAnswer(
            state=found.state,
            version=service.version,
            uptime_seconds=found.uptime_seconds,
            timestamp=iso(service.now()),
            queues=rows,
            queue_count=totals.queues,
            partitions=totals.partitions,
            messages=totals.counts(),
            store_ok=found.store_ok,
            store_error=found.store_error,
            buffer=buffer_answer(found.buffer),
            maintenance_push=found.maintenance_push,
            maintenance_pop=found.maintenance_pop,
            parked=found.parked,
            waiting=found.waiting,
            peers=found.peers,
        )
    )


async def _queues(service: Service, query: StatusQuery) -> tuple[Totals, list[StatusQueueRow]]:
    """Return the sums over all queues that the query asks for, and the first of them."""
    namespace, task = query.namespace, query.task
    if query.queue is None:
        totals = await service.snapshots.totals(namespace, task)
        return totals, [_status_row(flow) for flow in totals.first]
    found = (await service.broker.store.queue_flows(queue=query.queue)).rows
    if not found:
        raise NotFoundError(f"there is no queue {query.queue!r}")
    flows = [
        flow for flow in found if namespace in (None, flow.namespace) and task in (None, flow.task)
    ]
    return add_up(flows), [_status_row(flow) for flow in flows]


def _status_row(flow: QueueFlow) -> StatusQueueRow:
    return StatusQueueRow(
        id=str(flow.queue_id),
        name=flow.queue,
        namespace=flow.namespace,
        task=flow.task,
        partitions=flow.partitions,
        total_consumed=flow.completed,
        pending=flow.pending,
        completed=flow.completed,
        failed=flow.failed,
        dlq=flow.dead_letters,
    )


def buffers(service: Service, request: Request) -> Response:
    found: Health = service.broker.health()
    return json_answer(buffer_answer(found.buffer))


async def list_queues(service: Service, request: Request) -> Response:
    page = await service.broker.call(ListQueues(**structs.asdict(request.query)))
    return json_answer(
        QueueStatusAnswer(queues=list(map(_row, page.rows)), **paged(request.query, page))
    )


def _row(queue: QueueInfo) -> QueueStatusRow:
    return QueueStatusRow(
        name=queue.name,
        kind=queue.kind,
        namespace=queue.namespace,
        task=queue.task,
        paused=queue.paused,
        partitions=queue.partitions,
        messages=queue.counts,
    )


async def describe_queue(service: Service, request: Request) -> Response:
    query: DetailQuery = request.query
    store = service.broker.store
    name = path_name(request, "queue")
    row = await store.get_queue(name)
    groups = await store.list_groups(queue=name, limit=query.limit)
    partitions = await store.list_partitions(name, limit=query.limit)
    return json_answer(
        QueueDetailAnswer(
            queue=row,
            consumer_groups=groups.rows,
            partitions=partitions.rows,
        )
    )


def refresh(service: Service, request: Request) -> Response:
    return json_answer(Refreshed(refreshed=False))


ROUTES = (
    Route(
        method="GET",
        path="/health",
        handler=health,
        operation="getHealth",
        summary="Whether this broker can take work",
        tag="status",
        role=None,
        answer=HealthAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/status",
        handler=status,
        operation="getStatus",
        summary="The broker and everything in it, in figures",
        tag="status",
        query=StatusQuery,
        answer=StatusAnswer,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/api/v1/status/queues",
        handler=list_queues,
        operation="listQueueCounters",
        summary="The counters of all queues",
        tag="status",
        query=input_type(ListQueues, ListQueues.routes[0]),
        answer=QueueStatusAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/status/queues/{queue}",
        handler=describe_queue,
        operation="describeQueue",
        summary="A queue with its groups and partitions",
        tag="status",
        query=DetailQuery,
        answer=QueueDetailAnswer,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/api/v1/status/buffers",
        handler=buffers,
        operation="getBuffers",
        summary="The files that keep pushes while the store is down",
        tag="status",
        answer=BufferAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/stats/refresh",
        handler=refresh,
        operation="refreshStats",
        summary="Does nothing, for Queen's clients: counters are always current",
        tag="status",
        role=Role.READ,
        answer=Refreshed,
    ),
)
