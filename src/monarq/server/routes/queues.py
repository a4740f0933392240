"""Queues: operations, how much is before groups, partitions, what labels queues have."""

from __future__ import annotations

from monarq.model import Page
from monarq.server.answers import json_answer
from monarq.server.exchange import Request, Response
from monarq.server.operations import routes_of
from monarq.server.paging import paged
from monarq.server.parameters import path_name
from monarq.server.queue_totals import Totals
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.store.collecting import collect
from monarq.store.contract import Store
from monarq.times import iso
from monarq.wire.paging import PageQuery
from monarq.wire.queues import (
    DepthAnswer,
    DepthQuery,
    LabelRow,
    NamespacesAnswer,
    OverviewAnswer,
    PartitionDepth,
    TasksAnswer,
)


async def depth(service: Service, request: Request) -> Response:
    query: DepthQuery = request.query
    store = service.broker.store
    name = path_name(request, "queue")
    if query.group is None:
        pending, page = await _depth_of_queue(store, name, query)
    else:
        pending, page = await _depth_of_group(store, name, query.group, query)
    return json_answer(
        DepthAnswer(
            queue=name,
            group=query.group,
            pending=pending,
            partitions_pending=sum(1 for row in page.rows if row.pending),
            conflation=False,
            effective_pending=pending,
            partitions=page.rows,
            **paged(query, page),
        )
    )


async def _depth_of_queue(
    store: Store, name: str, query: DepthQuery
) -> tuple[int, Page[PartitionDepth]]:
    queue = await store.get_queue(name)
    page = await collect(
        lambda limit, after: store.list_partitions(name, limit=limit, after=after), query
    )
    rows = [PartitionDepth(partition=one.partition, pending=one.pending) for one in page.rows]
    return queue.counts.pending, Page(rows, page.next)


async def _depth_of_group(
    store: Store, name: str, group: str, query: DepthQuery
) -> tuple[int, Page[PartitionDepth]]:
    cursors = await collect(
        lambda limit, after: store.list_cursors(name, group, limit=limit, after=after), query
    )
    lag = sum(found.lag for found in (await store.list_groups(queue=name, group=group)).rows)
    rows = [PartitionDepth(partition=one.partition, pending=one.lag) for one in cursors.rows]
    return lag, Page(rows, cursors.next)


# --- labels and sums -------------------------------------------------------------------------


async def overview(service: Service, request: Request) -> Response:
    totals = await service.snapshots.totals()
    return json_answer(
        OverviewAnswer(
            queues=totals.queues,
            ordered_queues=totals.queues - totals.work_queues,
            work_queues=totals.work_queues,
            paused_queues=totals.paused_queues,
            namespaces=len(totals.namespaces),
            tasks=len(totals.tasks),
            partitions=totals.partitions,
            messages=totals.counts(),
            timestamp=iso(service.now()),
        )
    )


async def namespaces(service: Service, request: Request) -> Response:
    totals = await service.snapshots.totals()
    query: PageQuery = request.query
    page = _label_page(totals.namespaces, query)
    return json_answer(
        NamespacesAnswer(namespaces=page.rows, total=len(totals.namespaces), **paged(query, page))
    )


async def tasks(service: Service, request: Request) -> Response:
    totals = await service.snapshots.totals()
    query: PageQuery = request.query
    page = _label_page(totals.tasks, query)
    return json_answer(TasksAnswer(tasks=page.rows, total=len(totals.tasks), **paged(query, page)))


def _label_page(labels: dict[str, Totals], query: PageQuery) -> Page[LabelRow]:
    """By name; a label's name is its own token."""
    names = [name for name in sorted(labels) if query.after is None or name > query.after]
    names = names[query.offset : query.offset + query.limit + 1]
    rows = [
        LabelRow(
            name=name,
            queues=labels[name].queues,
            partitions=labels[name].partitions,
            messages=labels[name].stored,
            pending=labels[name].pending,
        )
        for name in names[: query.limit]
    ]
    return Page(rows, rows[-1].name if len(names) > query.limit else None)


_QUEUES = "/api/v1/resources/queues"

ROUTES = (
    *routes_of("queues"),
    Route(
        method="GET",
        path=f"{_QUEUES}/{{queue}}/depth",
        handler=depth,
        operation="getDepth",
        summary="How much is before a group, or before the slowest one, by partition",
        tag="queues",
        query=DepthQuery,
        answer=DepthAnswer,
        errors=(404,),
    ),
    *routes_of("partitions"),
    Route(
        method="GET",
        path="/api/v1/resources/overview",
        handler=overview,
        operation="getOverview",
        summary="Everything in figures",
        tag="queues",
        answer=OverviewAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/resources/namespaces",
        handler=namespaces,
        operation="listNamespaces",
        summary="The namespaces that queues have",
        tag="queues",
        query=PageQuery,
        answer=NamespacesAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/resources/tasks",
        handler=tasks,
        operation="listTasks",
        summary="The tasks that queues have as their label",
        tag="queues",
        query=PageQuery,
        answer=TasksAnswer,
    ),
)
