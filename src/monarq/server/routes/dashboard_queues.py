"""Queues and their partitions as the dashboard shows them: searched, sorted and paged here, from
counters that were read for all who look."""

from __future__ import annotations

from collections.abc import Callable

from monarq.errors import NotFoundError
from monarq.model import QueueFlow, QueueKind
from monarq.server.answers import json_answer
from monarq.server.exchange import Request, Response
from monarq.server.parameters import path_name
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.server.watch.partitions import (
    Heat,
    check_ordered,
    furthest_behind,
    line_of,
    read_standings,
    sort_key,
)
from monarq.server.watch.views import View
from monarq.server.watch.wording import plural
from monarq.times import iso
from monarq.wire.watching import (
    ClearLoss,
    DeleteLoss,
    HeatAnswer,
    HeatQuery,
    LossesAnswer,
    PartitionLinesAnswer,
    PartitionLinesQuery,
    QueueLinesAnswer,
    QueueLinesQuery,
    QueueSightAnswer,
)


async def list_queues(service: Service, request: Request) -> Response:
    query: QueueLinesQuery = request.query
    view = (await service.sampler.current()).view
    wanted = query.search.casefold() if query.search is not None else ""
    found = [
        flow
        for flow in view.now.queues.values()
        if wanted in flow.queue.casefold()
        and query.kind in (None, flow.kind)
        and query.namespace in (None, flow.namespace)
        and query.paused in (None, flow.paused)
    ]
    found.sort(key=lambda flow: flow.queue)
    key = _key(view, query.sort)
    if key is not None:
        # Equal ones stay in the order of their names, whichever way round.
        found.sort(key=key, reverse=query.order == "desc")
    elif query.order == "desc":
        found.reverse()
    page = found[query.offset : query.offset + query.limit]
    return json_answer(
        QueueLinesAnswer(
            queues=[view.queue_line(flow) for flow in page],
            total=len(found),
            limit=query.limit,
            offset=query.offset,
            at=iso(view.now.at),
        )
    )


def _key(view: View, sort: str) -> Callable[[QueueFlow], float] | None:
    """None for the name."""
    keys: dict[str, Callable[[QueueFlow], float]] = {
        "pending": lambda flow: flow.pending,
        "lagSeconds": lambda flow: view.lag_seconds(view.slowest(flow.queue)),
        "in": lambda flow: view.queue_rates(flow)[0],
        "out": lambda flow: view.queue_rates(flow)[1],
        "deadLetters": lambda flow: flow.dead_letters,
        "stored": lambda flow: flow.stored,
        "partitions": lambda flow: flow.partitions,
        "failed": lambda flow: flow.failed,
    }
    return keys.get(sort)


async def get_queue(service: Service, request: Request) -> Response:
    name = path_name(request, "queue")
    queue = await service.broker.store.queue_settings(name)
    view = await _view_of(service, name)
    groups = sorted(view.now.groups.get(name, {}).values(), key=lambda group: group.group)
    return json_answer(
        QueueSightAnswer(
            line=view.queue_line(view.now.queues[name]),
            created_at=iso(queue.created_at),
            options=queue.options,
            groups=[view.group_line(group) for group in groups],
            dead_queue_of=_dead_queue_of(view, name),
            at=iso(view.now.at),
        )
    )


async def _view_of(service: Service, name: str) -> View:
    """A view that has the queue, also if it was made just now."""
    view = (await service.sampler.current()).view
    if name not in view.now.queues:
        view = (await service.sampler.current(anew=True)).view
    if name not in view.now.queues:
        raise NotFoundError(f"there is no queue {name!r}")
    return view


def _dead_queue_of(view: View, name: str) -> list[str]:
    return sorted(flow.queue for flow in view.now.queues.values() if flow.dead_queue == name)


def _items_lost(count: int, what: str) -> ClearLoss:
    return ClearLoss(messages=count, leased=0, text=[f"{plural(count, what)} will be removed."])


async def get_losses(service: Service, request: Request) -> Response:
    name = path_name(request, "queue")
    store = service.broker.store
    found = (await store.queue_flows(queue=name)).rows
    if not found:
        raise NotFoundError(f"there is no queue {name!r}")
    [flow] = found
    groups = (await store.group_flows(queue=name, limit=1000)).rows
    blocked_by = _dead_queue_of((await service.sampler.current(anew=True)).view, name)
    is_work = flow.kind is QueueKind.WORK
    what = "item" if is_work else "message"
    # What is dead of a work queue stays with its dead letter.
    kept = flow.stored - flow.dead_items if is_work else flow.stored
    clear = [f"{plural(kept, what)} will be removed, done or not."]
    delete = [f"{plural(flow.stored, what)} and the queue itself will be removed."]
    if is_work and flow.leased:
        clear.append(f"{plural(flow.leased, 'item')} being worked on will be lost too.")
    if groups and kept:
        clear.append(f"{plural(len(groups), 'group')} will be at the end.")
    if groups:
        delete.append(f"{plural(len(groups), 'group')} will be forgotten.")
    if flow.dead_letters:
        clear.append(f"{plural(flow.dead_letters, 'dead letter')} will stay.")
        delete.append(f"{plural(flow.dead_letters, 'dead letter')} will be lost.")
    if blocked_by:
        names = ", ".join(f"`{one}`" for one in blocked_by[:10])
        delete.append(f"It cannot be deleted: it is the dead queue of {names}.")
    return json_answer(
        LossesAnswer(
            queue=name,
            clear=ClearLoss(messages=kept, leased=flow.leased, text=clear),
            clear_scheduled=_items_lost(flow.scheduled, "scheduled item") if is_work else None,
            clear_unleased=_items_lost(kept - flow.leased, "item") if is_work else None,
            delete=DeleteLoss(
                messages=flow.stored,
                dead_letters=flow.dead_letters,
                groups=len(groups),
                partitions=flow.partitions,
                text=delete,
                blocked_by=blocked_by,
            ),
        )
    )


# --- partitions ------------------------------------------------------------------------------


async def list_partitions(service: Service, request: Request) -> Response:
    query: PartitionLinesQuery = request.query
    name = path_name(request, "queue")
    group = await _group_shown(service, name, query.group)
    now = service.now()
    standings, truncated = await read_standings(service.broker.store, name, group)
    wanted = query.search.casefold() if query.search is not None else ""
    found = [one for one in standings if wanted in one.partition.casefold()]
    if query.sort != "id" or query.order == "desc":
        found.sort(key=sort_key(query.sort, now), reverse=query.order == "desc")
    page = found[query.offset : query.offset + query.limit]
    return json_answer(
        PartitionLinesAnswer(
            queue=name,
            group=group,
            partitions=[line_of(one, now) for one in page],
            total=len(found),
            limit=query.limit,
            offset=query.offset,
            truncated=truncated,
            at=iso(now),
        )
    )


async def get_heat(service: Service, request: Request) -> Response:
    query: HeatQuery = request.query
    name = path_name(request, "queue")
    group = await _group_shown(service, name, query.group)
    now = service.now()
    standings, truncated = await read_standings(service.broker.store, name, group)
    heat = Heat(standings, query.by, query.cells, now)
    return json_answer(
        HeatAnswer(
            queue=name,
            group=group,
            by=query.by,
            partitions=len(standings),
            per_cell=heat.per_cell,
            max=heat.max,
            values=heat.values,
            states=heat.states,
            first_ids=heat.first_ids,
            names=heat.names,
            truncated=truncated,
            at=iso(now),
        )
    )


async def _group_shown(service: Service, queue: str, asked: str | None) -> str | None:
    """By whose place the partitions of an ordered queue are shown."""
    await check_ordered(service.broker.store, queue)
    return asked if asked is not None else furthest_behind(await _view_of(service, queue), queue)


_QUEUES = "/api/v1/dashboard/queues"
_QUEUE = f"{_QUEUES}/{{queue}}"

ROUTES = (
    Route(
        method="GET",
        path=_QUEUES,
        handler=list_queues,
        operation="listDashboardQueues",
        summary="Queues, searched, sorted and paged, with their rates",
        tag="dashboard",
        query=QueueLinesQuery,
        answer=QueueLinesAnswer,
    ),
    Route(
        method="GET",
        path=_QUEUE,
        handler=get_queue,
        operation="getDashboardQueue",
        summary="A queue with its options, rates and groups",
        tag="dashboard",
        answer=QueueSightAnswer,
        errors=(404,),
    ),
    Route(
        method="GET",
        path=f"{_QUEUE}/losses",
        handler=get_losses,
        operation="getQueueLosses",
        summary="What clearing or deleting a queue would lose",
        tag="dashboard",
        answer=LossesAnswer,
        errors=(404,),
    ),
    Route(
        method="GET",
        path=f"{_QUEUE}/partitions",
        handler=list_partitions,
        operation="listDashboardPartitions",
        summary="The partitions of a queue as a group sees them",
        tag="dashboard",
        query=PartitionLinesQuery,
        answer=PartitionLinesAnswer,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path=f"{_QUEUE}/heat",
        handler=get_heat,
        operation="getQueueHeat",
        summary="Very many partitions as a heat map",
        tag="dashboard",
        query=HeatQuery,
        answer=HeatAnswer,
        errors=(404, 409),
    ),
)
