"""Consumer groups: how far they have come, moving and deleting them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from monarq.errors import InvalidRequestError, NotFoundError
from monarq.model import Cursor, Group, Page, Seek, SeekTo, StartFrom
from monarq.model.pages import MOST_ROWS, walk
from monarq.operations.operation import Role
from monarq.server.answers import json_answer
from monarq.server.exchange import Request, Response
from monarq.server.paging import paged
from monarq.server.parameters import path_name
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.store.collecting import collect
from monarq.store.contract import Store
from monarq.times import iso, iso_or_none, parse_utc
from monarq.wire.groups import (
    CursorRow,
    DeleteGroupQuery,
    GroupAnswer,
    GroupDeleted,
    GroupInQueue,
    GroupQuery,
    GroupRow,
    GroupsAnswer,
    GroupsQuery,
    LaggingQuery,
    SeekBody,
    Sought,
    Subscribed,
    SubscriptionBody,
)
from monarq.wire.paging import PageQuery

_LAGGING_SECONDS = 300.0


async def list_groups(service: Service, request: Request) -> Response:
    query: GroupsQuery = request.query
    wanted = query.search.casefold() if query.search is not None else ""
    return await _listed(
        service.broker.store, query, query.queue, lambda group: wanted in group.name.casefold()
    )


async def list_lagging(service: Service, request: Request) -> Response:
    query: LaggingQuery = request.query
    return await _listed(
        service.broker.store,
        query,
        query.queue,
        lambda group: group.lag > 0 and group.lag_seconds >= query.min_lag_seconds,
    )


async def _listed(
    store: Store, query: PageQuery, queue: str | None, keep: Callable[[Group], bool]
) -> Response:
    page = await collect(
        lambda limit, after: store.list_groups(queue=queue, limit=limit, after=after),
        query,
        keep=keep,
    )
    rows = [group_row(group) for group in page.rows]
    return json_answer(GroupsAnswer(consumer_groups=rows, **paged(query, page)))


def group_row(group: Group) -> GroupRow:
    return GroupRow(**_fields(group))


def _fields(group: Group) -> dict[str, Any]:
    """Of a `GroupRow`."""
    return {
        "name": group.name,
        "queue_name": group.queue,
        "lag": group.lag,
        "lag_seconds": group.lag_seconds,
        "total_lag": group.lag,
        "max_time_lag": group.lag_seconds,
        "state": "Lagging" if group.lag_seconds > _LAGGING_SECONDS else "Stable",
        "subscription_timestamp": iso(group.start_at) if group.start_at else None,
        "created_at": iso(group.created_at),
        "completed": group.completed,
        "failed": group.failed,
        "dead": group.dead,
    }


async def get_group(service: Service, request: Request) -> Response:
    query: GroupQuery = request.query
    store = service.broker.store
    name = path_name(request, "group")
    if query.queue is None:
        groups = await collect(
            lambda limit, after: store.list_groups(group=name, limit=limit, after=after), query
        )
    else:
        groups = Page((await store.list_groups(queue=query.queue, group=name)).rows)
    queues = await _with_partitions(service, groups.rows, query)
    return json_answer(GroupAnswer(name=name, queues=queues, **paged(query, groups)))


async def _with_partitions(
    service: Service, groups: list[Group], query: GroupQuery
) -> list[GroupInQueue]:
    """With the cursors of their partitions, as many as the limit allows in all."""
    store = service.broker.store
    left = query.limit
    found: list[GroupInQueue] = []
    for group in groups:
        cursors: Page[Cursor] = Page([])
        if left:
            after = query.after if query.queue is not None else None
            cursors = await store.list_cursors(group.queue, group.name, limit=left, after=after)
        left -= len(cursors.rows)
        found.append(
            GroupInQueue(
                **_fields(group),
                partitions=[_cursor_row(cursor, service.now()) for cursor in cursors.rows],
                partitions_next=cursors.next,
            )
        )
    return found


def _cursor_row(cursor: Cursor, now: int) -> CursorRow:
    return CursorRow(
        partition=cursor.partition,
        partition_id=str(cursor.partition_id),
        position=cursor.position,
        last_seq=cursor.last_seq,
        lag=cursor.lag,
        available_at=iso_or_none(cursor.available_at),
        lease_until=iso_or_none(cursor.lease_until),
        lease_active=cursor.lease_until is not None and cursor.lease_until > now,
    )


# --- deleting --------------------------------------------------------------------------------


async def delete_group(service: Service, request: Request) -> Response:
    return await _delete(service, request, None)


async def delete_group_of_queue(service: Service, request: Request) -> Response:
    return await _delete(service, request, path_name(request, "queue"))


async def _delete(service: Service, request: Request, queue: str | None) -> Response:
    query: DeleteGroupQuery = request.query
    name = path_name(request, "group")
    count = await service.broker.store.delete_group(
        name, queue=queue, forget_start=query.delete_metadata
    )
    return json_answer(
        GroupDeleted(
            success=True,
            deleted=count > 0,
            consumer_group=name,
            queue_name=queue,
            queues=count,
            metadata_deleted=query.delete_metadata,
        )
    )


# --- moving ----------------------------------------------------------------------------------


async def seek(service: Service, request: Request) -> Response:
    return await _seek(service, request, None)


async def seek_partition(service: Service, request: Request) -> Response:
    return await _seek(service, request, path_name(request, "partition"))


async def _seek(service: Service, request: Request, partition: str | None) -> Response:
    group, queue = path_name(request, "group"), path_name(request, "queue")
    body: SeekBody = request.body
    if partition is not None and body == SeekBody():
        # Queen's route for one partition knows no other place.
        body = SeekBody(to_end=True)
    wanted = seek_request(body, group, queue, partition)
    lag = await service.broker.store.seek(wanted)
    return json_answer(
        Sought(success=True, consumer_group=group, queue_name=queue, partition=partition, lag=lag)
    )


def seek_request(body: SeekBody, group: str, queue: str, partition: str | None) -> Seek:
    targets: list[dict[str, Any]] = []
    if body.to is not None:
        targets.append({"to": body.to})
    if body.timestamp is not None:
        targets.append({"time": parse_utc(body.timestamp, "timestamp")})
    if body.seq is not None:
        targets.append({"seq": body.seq})
    if body.to_end:
        targets.append({"to": SeekTo.END})
    if body.position is not None:
        targets.append({"to": SeekTo.START if body.position == "earliest" else SeekTo.END})
    if len(targets) != 1:
        raise InvalidRequestError(
            "say where to with one of to (start or end), timestamp, seq, toEnd and position"
        )
    return Seek(group=group, queue=queue, partition=partition, **targets[0])


async def subscribe(service: Service, request: Request) -> Response:
    """A group that is new is told where to begin; one that exists is moved there."""
    body: SubscriptionBody = request.body
    store = service.broker.store
    name = path_name(request, "group")
    start = _start(body)
    queues = [
        group.queue
        async for group in walk(
            lambda limit, after: store.list_groups(
                queue=body.queue, group=name, limit=limit, after=after
            )
        )
        if body.namespace is None and body.task is None
    ]
    for queue in queues:
        await store.seek(_seek_to(start, name, queue))
    begins = _point(start, service.now())
    if not queues:
        if body.queue is None and body.namespace is None and body.task is None:
            raise NotFoundError(f"there is no group {name!r}; name the queue where it shall begin")
        begins = await store.subscribe(
            name, start, queue=body.queue, namespace=body.namespace, task=body.task
        )
    return json_answer(
        Subscribed(
            success=True,
            consumer_group=name,
            subscription_timestamp=iso(begins) if begins else None,
            queues=queues[:MOST_ROWS],
        )
    )


def _start(body: SubscriptionBody) -> StartFrom | int:
    if (body.subscription_timestamp is None) is (body.start is None):
        raise InvalidRequestError("say where it begins with subscriptionTimestamp or start")
    if body.queue is not None and (body.namespace is not None or body.task is not None):
        raise InvalidRequestError("give a queue, or namespace and task, not both")
    if body.start is not None:
        return body.start
    assert body.subscription_timestamp is not None
    return parse_utc(body.subscription_timestamp, "subscriptionTimestamp")


def _seek_to(start: StartFrom | int, group: str, queue: str) -> Seek:
    if isinstance(start, StartFrom):
        to = SeekTo.START if start is StartFrom.ALL else SeekTo.END
        return Seek(group=group, queue=queue, to=to)
    return Seek(group=group, queue=queue, time=start)


def _point(start: StartFrom | int, now: int) -> int:
    if isinstance(start, StartFrom):
        return 0 if start is StartFrom.ALL else now
    return start


_GROUPS = "/api/v1/consumer-groups"

ROUTES = (
    Route(
        method="GET",
        path=_GROUPS,
        handler=list_groups,
        summary="List groups by queue and name, with their lag in messages and in seconds",
        tag="groups",
        query=GroupsQuery,
        answer=GroupsAnswer,
    ),
    Route(
        method="GET",
        path=f"{_GROUPS}/lagging",
        handler=list_lagging,
        operation="listLaggingGroups",
        summary="List the groups that are behind for a time",
        tag="groups",
        query=LaggingQuery,
        answer=GroupsAnswer,
    ),
    Route(
        method="GET",
        path=f"{_GROUPS}/{{group}}",
        handler=get_group,
        summary="A group in each of its queues, with its cursors",
        tag="groups",
        query=GroupQuery,
        answer=GroupAnswer,
        errors=(404,),
    ),
    Route(
        method="DELETE",
        path=f"{_GROUPS}/{{group}}",
        handler=delete_group,
        summary="Delete a group everywhere",
        tag="groups",
        role=Role.ADMIN,
        query=DeleteGroupQuery,
        answer=GroupDeleted,
    ),
    Route(
        method="DELETE",
        path=f"{_GROUPS}/{{group}}/queues/{{queue}}",
        handler=delete_group_of_queue,
        operation="deleteGroupOfQueue",
        summary="Delete a group from one queue",
        tag="groups",
        role=Role.ADMIN,
        query=DeleteGroupQuery,
        answer=GroupDeleted,
        errors=(404,),
    ),
    Route(
        method="POST",
        path=f"{_GROUPS}/{{group}}/queues/{{queue}}/seek",
        handler=seek,
        summary="Move a group's cursors in a queue; its leases there end",
        tag="groups",
        role=Role.WRITE,
        body=SeekBody,
        answer=Sought,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path=f"{_GROUPS}/{{group}}/queues/{{queue}}/partitions/{{partition}}/seek",
        handler=seek_partition,
        summary="Move a group's cursor in one partition; to the end if the body is empty",
        tag="groups",
        role=Role.WRITE,
        body=SeekBody,
        needs_body=False,
        answer=Sought,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path=f"{_GROUPS}/{{group}}/subscription",
        handler=subscribe,
        summary="Say where a group begins, or move it there",
        tag="groups",
        role=Role.WRITE,
        body=SubscriptionBody,
        answer=Subscribed,
        errors=(404, 409),
    ),
)
