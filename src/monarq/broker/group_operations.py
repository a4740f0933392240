"""Operations on groups that are composed of several calls of the store."""

from __future__ import annotations

from msgspec import structs

from monarq.broker.operations import Composition, handles
from monarq.errors import NotFoundError
from monarq.model import Cursor, Group, Page, SeekTo, StartFrom
from monarq.model.pages import MOST_ROWS, walk
from monarq.operations.groups import (
    GetGroup,
    GroupAnswer,
    GroupInQueue,
    ListCursors,
    ListGroups,
    ListLaggingGroups,
    Seek,
    Subscribe,
    Subscribed,
)
from monarq.store.collecting import collect
from monarq.times import Micros


@handles(ListLaggingGroups)
async def list_lagging_groups(broker: Composition, request: ListLaggingGroups) -> Page[Group]:
    return await collect(
        lambda limit, after: broker.call(ListGroups(queue=request.queue, limit=limit, after=after)),
        request,
        keep=lambda group: group.lag > 0 and group.lag_seconds >= request.min_lag_seconds,
    )


@handles(GetGroup)
async def get_group(broker: Composition, request: GetGroup) -> GroupAnswer:
    if request.queue is None:
        groups = await broker.call(
            ListGroups(
                group=request.group,
                limit=request.limit,
                offset=request.offset,
                after=request.after,
            )
        )
    else:
        groups = await broker.call(ListGroups(group=request.group, queue=request.queue))
    return GroupAnswer(
        name=request.group,
        queues=await _with_partitions(broker, groups.rows, request),
        limit=request.limit,
        offset=request.offset,
        next=groups.next,
    )


async def _with_partitions(
    broker: Composition, groups: list[Group], request: GetGroup
) -> list[GroupInQueue]:
    """Return the groups with the cursors of their partitions, as many as the limit allows."""
    left = request.limit
    found: list[GroupInQueue] = []
    for group in groups:
        cursors: Page[Cursor] = Page([])
        if left:
            after = request.after if request.queue is not None else None
            cursors = await broker.call(
                ListCursors(queue=group.queue, group=group.name, limit=left, after=after)
            )
        left -= len(cursors.rows)
        found.append(
            GroupInQueue(
                **structs.asdict(group), partitions=cursors.rows, partitions_next=cursors.next
            )
        )
    return found


@handles(Subscribe)
async def subscribe(broker: Composition, request: Subscribe) -> Subscribed:
    store, name = broker.store, request.group
    queues: list[str] = []
    if request.namespace is None and request.task is None:
        groups = walk(
            lambda limit, after: broker.call(
                ListGroups(queue=request.queue, group=name, limit=limit, after=after)
            )
        )
        queues = [group.queue async for group in groups]
    for queue in queues:
        await broker.call(_seek(request, queue))
    if queues:
        begins = _start_time(request, broker.now)
    elif request.queue is None and request.namespace is None and request.task is None:
        raise NotFoundError(f"there is no group {name!r}; name the queue where it shall begin")
    else:
        start = int(request.time or 0) if request.start is None else request.start
        begins = await store.subscribe(
            name, start, queue=request.queue, namespace=request.namespace, task=request.task
        )
    return Subscribed(
        success=True,
        consumer_group=name,
        subscription_timestamp=Micros(begins) if begins else None,
        queues=queues[:MOST_ROWS],
    )


def _seek(request: Subscribe, queue: str) -> Seek:
    if request.start is None:
        return Seek(group=request.group, queue=queue, time=request.time)
    to = SeekTo.START if request.start is StartFrom.ALL else SeekTo.END
    return Seek(group=request.group, queue=queue, to=to)


def _start_time(request: Subscribe, now: int) -> int:
    """Return the start position in microseconds; 0 is the beginning."""
    if request.time is not None:
        return request.time
    return now if request.start is StartFrom.NEW else 0
