"""Groups as the dashboard shows them: how far behind, what they fail on, what a seek would do,
and skipping the message that blocks one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec

from monarq.clock import SECOND
from monarq.errors import NotFoundError
from monarq.ids import message_id
from monarq.model import GroupFlow, Standing
from monarq.operations.groups import Seek, SeekBody
from monarq.operations.operation import Role
from monarq.server.answers import json_answer
from monarq.server.exchange import Request, Response
from monarq.server.parameters import path_name
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.server.watch.views import View
from monarq.store.contract import Store
from monarq.times import iso, iso_or_none
from monarq.wire.groups import SeekPreviewAnswer
from monarq.wire.watching import (
    FailingAnswer,
    FailingQuery,
    FailingRow,
    GroupLinesAnswer,
    GroupLinesQuery,
    SkipBody,
    Skipped,
)

_SHOWN_BYTES = 64 << 10
_BY_HAND = "skipped by hand"


async def list_groups(service: Service, request: Request) -> Response:
    query: GroupLinesQuery = request.query
    view = (await service.sampler.current()).view
    wanted = query.search.casefold() if query.search is not None else ""
    found = [
        group
        for queue, named in view.now.groups.items()
        if query.queue in (None, queue)
        for group in named.values()
        if query.group in (None, group.group)
        and (wanted in group.group.casefold() or wanted in group.queue.casefold())
    ]
    is_down = query.order == "desc"
    found.sort(key=lambda group: (group.queue, group.group), reverse=is_down)
    if query.sort == "name":
        found.sort(key=lambda group: group.group, reverse=is_down)
    elif query.sort != "queue":
        found.sort(key=_key(view, query.sort), reverse=is_down)
    page = found[query.offset : query.offset + query.limit]
    return json_answer(
        GroupLinesAnswer(
            groups=[view.group_line(group) for group in page],
            total=len(found),
            limit=query.limit,
            offset=query.offset,
            at=iso(view.now.at),
        )
    )


def _key(view: View, sort: str) -> Callable[[GroupFlow], float]:
    keys: dict[str, Callable[[GroupFlow], float]] = {
        "lag": lambda group: group.lag,
        "lagSeconds": view.lag_seconds,
        "failed": lambda group: group.failed,
    }
    return keys[sort]


# --- what it fails on ------------------------------------------------------------------------


async def list_failing(service: Service, request: Request) -> Response:
    query: FailingQuery = request.query
    group, queue = path_name(request, "group"), path_name(request, "queue")
    store = service.broker.store
    found = await store.queue_settings(queue)
    failing = await store.list_failing(queue, group, limit=query.limit)
    rows = [await _failing(store, one, found.options.retry_limit, service.now()) for one in failing]
    return json_answer(FailingAnswer(failing=rows, truncated=len(failing) == query.limit))


async def _failing(store: Store, standing: Standing, retry_limit: int, now: int) -> FailingRow:
    seq = standing.position + 1
    own_id = message_id(standing.partition_id, seq)
    transaction_id, data = own_id, None
    # It may have gone meanwhile.
    with contextlib.suppress(NotFoundError):
        message = await store.get_message(standing.partition_id, own_id)
        transaction_id = message.transaction_id
        if len(message.payload) <= _SHOWN_BYTES:
            data = msgspec.Raw(message.payload)
    created_at = standing.oldest_at or now
    return FailingRow(
        partition=standing.partition,
        partition_id=str(standing.partition_id),
        seq=seq,
        transaction_id=transaction_id,
        attempts=standing.attempts,
        retry_limit=retry_limit,
        retry_at=iso_or_none(standing.retry_at),
        consumer=standing.consumer,
        lease_until=iso_or_none(standing.lease_until),
        error=standing.error,
        created_at=iso(created_at),
        age_seconds=round(max(0, now - created_at) / SECOND, 1),
        behind=max(0, standing.lag - 1),
        data=data,
    )


async def skip(service: Service, request: Request) -> Response:
    body: SkipBody = request.body
    group, queue = path_name(request, "group"), path_name(request, "queue")
    partition = path_name(request, "partition")
    lag = await service.broker.skip(queue, group, partition, body.seq, body.error or _BY_HAND)
    return json_answer(
        Skipped(
            success=True,
            consumer_group=group,
            queue_name=queue,
            partition=partition,
            seq=body.seq,
            lag=lag,
        )
    )


# --- what a seek would do ----------------------------------------------------------------------


async def preview_seek(service: Service, request: Request) -> Response:
    return await _preview(service, request, None)


async def preview_seek_partition(service: Service, request: Request) -> Response:
    return await _preview(service, request, path_name(request, "partition"))


async def _preview(service: Service, request: Request, partition: str | None) -> Response:
    body: SeekBody = request.body
    told = await service.broker.store.preview_seek(
        Seek(
            group=path_name(request, "group"),
            queue=path_name(request, "queue"),
            partition=partition,
            **body.fields(),
        )
    )
    return json_answer(
        SeekPreviewAnswer(
            lag=told.lag,
            replayed=told.replayed,
            skipped=told.skipped,
            partitions=told.partitions,
            leases=told.leases,
        )
    )


_OF_QUEUE = "/api/v1/consumer-groups/{group}/queues/{queue}"

ROUTES = (
    Route(
        method="GET",
        path="/api/v1/dashboard/groups",
        handler=list_groups,
        operation="listDashboardGroups",
        summary="Groups in their queues, searched, sorted and paged, with their rates",
        tag="dashboard",
        query=GroupLinesQuery,
        answer=GroupLinesAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/dashboard/groups/{group}/queues/{queue}/failing",
        handler=list_failing,
        operation="listFailingPartitions",
        summary="The messages that a group fails on, and what waits behind them",
        tag="dashboard",
        query=FailingQuery,
        answer=FailingAnswer,
        errors=(404,),
    ),
    Route(
        method="POST",
        path=f"{_OF_QUEUE}/seek/preview",
        handler=preview_seek,
        summary="What a seek would do",
        tag="groups",
        body=SeekBody,
        answer=SeekPreviewAnswer,
        errors=(404,),
    ),
    Route(
        method="POST",
        path=f"{_OF_QUEUE}/partitions/{{partition}}/seek/preview",
        handler=preview_seek_partition,
        summary="What a seek in one partition would do",
        tag="groups",
        body=SeekBody,
        answer=SeekPreviewAnswer,
        errors=(404,),
    ),
    Route(
        method="POST",
        path=f"{_OF_QUEUE}/partitions/{{partition}}/skip",
        handler=skip,
        operation="skipMessages",
        summary="Make the next message dead for a group, so that those behind it go on",
        tag="groups",
        role=Role.WRITE,
        body=SkipBody,
        answer=Skipped,
        errors=(404, 409),
    ),
)
