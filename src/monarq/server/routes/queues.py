"""Queues: listing, describing, deleting, clearing and pausing them; what labels they have."""

from __future__ import annotations

from collections.abc import Callable

from monarq.errors import NotFoundError
from monarq.model import Page, PartitionStats, Queue, QueueStats
from monarq.operations.operation import Role
from monarq.server.answers import json_answer
from monarq.server.exchange import Request, Response
from monarq.server.operations import routes_of
from monarq.server.paging import paged
from monarq.server.parameters import path_name
from monarq.server.queue_totals import Totals, counts_of
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.store.collecting import collect
from monarq.store.contract import Store
from monarq.times import iso
from monarq.wire.paging import PageQuery
from monarq.wire.queues import (
    ClearBody,
    DepthAnswer,
    DepthQuery,
    LabelRow,
    NamespacesAnswer,
    OverviewAnswer,
    PartitionDepth,
    PartitionRow,
    PartitionsAnswer,
    PartitionsQuery,
    QueueCleared,
    QueueDeleted,
    QueuePaused,
    QueueRow,
    QueuesAnswer,
    QueuesQuery,
    TasksAnswer,
)


async def list_queues(service: Service, request: Request) -> Response:
    query: QueuesQuery = request.query
    store = service.broker.store
    page = await collect(
        lambda limit, after: store.list_queues(
            namespace=query.namespace, task=query.task, limit=limit, after=after
        ),
        query,
        keep=named_like(query.search),
    )
    return json_answer(QueuesAnswer(queues=await _rows(store, page.rows), **paged(query, page)))


def named_like(part: str | None) -> Callable[[Queue], bool] | None:
    if part is None:
        return None
    wanted = part.casefold()
    return lambda queue: wanted in queue.name.casefold()


async def _rows(store: Store, queues: list[Queue]) -> list[QueueRow]:
    stats = {one.queue: one for one in await store.stats_of([queue.name for queue in queues])}
    # A queue that was deleted meanwhile is not listed.
    return [_row(queue, stats[queue.name]) for queue in queues if queue.name in stats]


def _row(queue: Queue, stats: QueueStats) -> QueueRow:
    return QueueRow(
        id=str(queue.id),
        name=queue.name,
        kind=queue.kind,
        namespace=queue.namespace,
        task=queue.task,
        paused=queue.paused,
        created_at=iso(queue.created_at),
        partitions=stats.partitions,
        messages=counts_of(stats),
        options=queue.options,
    )


async def get_queue(service: Service, request: Request) -> Response:
    return json_answer(await queue_row(service.broker.store, path_name(request, "queue")))


async def queue_row(store: Store, name: str) -> QueueRow:
    rows = await _rows(store, [await store.get_queue(name)])
    if not rows:
        raise NotFoundError(f"there is no queue {name!r}")
    return rows[0]


async def delete_queue(service: Service, request: Request) -> Response:
    """Answers 200 for a queue that is not there too: Queen's clients delete before they create."""
    store = service.broker.store
    name = path_name(request, "queue")
    stats = await store.stats_of([name])
    deleted = await store.delete_queue(name, commands=request.principal.may_run_commands)
    return json_answer(
        QueueDeleted(
            deleted=deleted,
            queue=name,
            messages=stats[0].stored if deleted and stats else 0,
            dead_letters=stats[0].dead_letters if deleted and stats else 0,
        )
    )


async def clear_queue(service: Service, request: Request) -> Response:
    name = path_name(request, "queue")
    body: ClearBody = request.body
    removed = await service.broker.store.clear_queue(
        name,
        scheduled_only=body.scheduled_only,
        keep_leased=body.keep_leased,
        commands=request.principal.may_run_commands,
    )
    return json_answer(QueueCleared(queue=name, cleared=removed))


async def clear_whole_queue(service: Service, request: Request) -> Response:
    name = path_name(request, "queue")
    removed = await service.broker.store.clear_queue(
        name, commands=request.principal.may_run_commands
    )
    return json_answer(QueueCleared(queue=name, cleared=removed))


async def pause(service: Service, request: Request) -> Response:
    return await _set_paused(service, request, True)


async def resume(service: Service, request: Request) -> Response:
    return await _set_paused(service, request, False)


async def _set_paused(service: Service, request: Request, paused: bool) -> Response:
    queue = await service.broker.store.set_paused(
        path_name(request, "queue"), paused, commands=request.principal.may_run_commands
    )
    return json_answer(QueuePaused(queue=queue.name, paused=queue.paused))


# --- partitions ------------------------------------------------------------------------------


async def list_partitions(service: Service, request: Request) -> Response:
    query: PartitionsQuery = request.query
    store = service.broker.store
    page = await collect(
        lambda limit, after: store.list_partitions(query.queue, limit=limit, after=after), query
    )
    rows = [partition_row(one) for one in page.rows]
    return json_answer(PartitionsAnswer(partitions=rows, **paged(query, page)))


def partition_row(one: PartitionStats) -> PartitionRow:
    return PartitionRow(
        id=str(one.partition_id),
        name=one.partition,
        queue=one.queue,
        first_seq=one.first_seq,
        last_seq=one.last_seq,
        pending=one.pending,
        last_pushed_at=iso(one.last_at),
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
    stats = (await store.queue_stats(queue=name)).rows[0]
    page = await collect(
        lambda limit, after: store.list_partitions(name, limit=limit, after=after), query
    )
    rows = [PartitionDepth(partition=one.partition, pending=one.pending) for one in page.rows]
    return stats.pending, Page(rows, page.next)


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
    totals = await service.totals.read()
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
    totals = await service.totals.read()
    query: PageQuery = request.query
    page = _label_page(totals.namespaces, query)
    return json_answer(
        NamespacesAnswer(namespaces=page.rows, total=len(totals.namespaces), **paged(query, page))
    )


async def tasks(service: Service, request: Request) -> Response:
    totals = await service.totals.read()
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
        path=_QUEUES,
        handler=list_queues,
        summary="List queues by name, with their options and counters",
        tag="queues",
        query=QueuesQuery,
        answer=QueuesAnswer,
    ),
    Route(
        method="GET",
        path=f"{_QUEUES}/{{queue}}",
        handler=get_queue,
        summary="Describe a queue: options and counters",
        tag="queues",
        answer=QueueRow,
        errors=(404,),
    ),
    Route(
        method="DELETE",
        path=f"{_QUEUES}/{{queue}}",
        handler=delete_queue,
        summary="Delete a queue with all that belongs to it",
        tag="queues",
        role=Role.ADMIN,
        answer=QueueDeleted,
        errors=(409,),
    ),
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
    Route(
        method="POST",
        path=f"{_QUEUES}/{{queue}}/clear",
        handler=clear_queue,
        summary="Remove what is stored in a queue, not the queue nor its dead letters",
        tag="queues",
        role=Role.ADMIN,
        body=ClearBody,
        needs_body=False,
        answer=QueueCleared,
        errors=(404, 409),
    ),
    Route(
        method="DELETE",
        path="/api/v1/queues/{queue}/clear",
        handler=clear_whole_queue,
        operation="clearQueueLikeQueen",
        summary="Remove all that is stored in a queue, as Queen's clients call it",
        tag="queues",
        role=Role.ADMIN,
        answer=QueueCleared,
        errors=(404,),
    ),
    Route(
        method="POST",
        path=f"{_QUEUES}/{{queue}}/pause",
        handler=pause,
        operation="pauseQueue",
        summary="Pause a queue: it takes pushes and acks, and pops find nothing",
        tag="queues",
        role=Role.ADMIN,
        answer=QueuePaused,
        errors=(404,),
    ),
    Route(
        method="POST",
        path=f"{_QUEUES}/{{queue}}/resume",
        handler=resume,
        operation="resumeQueue",
        summary="Let pops find messages again",
        tag="queues",
        role=Role.ADMIN,
        answer=QueuePaused,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/api/v1/resources/partitions",
        handler=list_partitions,
        summary="List the partitions of a queue",
        tag="queues",
        query=PartitionsQuery,
        answer=PartitionsAnswer,
        errors=(404,),
    ),
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
