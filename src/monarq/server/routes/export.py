"""Export for pipelines: what an ordered queue keeps, read without a group or a lease."""

from __future__ import annotations

from monarq.errors import ConflictError
from monarq.model import QueueKind
from monarq.server.answers import json_answer
from monarq.server.arrow_stream import CONTENT_TYPE, arrow_stream
from monarq.server.exchange import Request, Response, StreamingResponse
from monarq.server.paging import collect, paged
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.store.contract import Store
from monarq.wire.export import PlanAnswer, PlanQuery, PlanRow, ReadQuery


async def plan(service: Service, request: Request) -> Response:
    query: PlanQuery = request.query
    store = service.broker.store
    await _check_ordered(store, query.queue)
    page = await collect(
        lambda limit, after: store.list_partitions(query.queue, limit=limit, after=after), query
    )
    rows = [
        PlanRow(
            partition_id=str(one.partition_id),
            partition=one.partition,
            first_seq=one.first_seq,
            last_seq=one.last_seq,
        )
        for one in page.rows
    ]
    return json_answer(PlanAnswer(queue=query.queue, partitions=rows, **paged(query, page)))


async def read(service: Service, request: Request) -> StreamingResponse:
    query: ReadQuery = request.query
    store = service.broker.store
    partition = await store.get_partition(int(query.partition_id))
    await _check_ordered(store, partition.queue)
    last = partition.last_seq if query.to is None else min(query.to, partition.last_seq)
    chunks = await arrow_stream(store, partition, query.from_, last)
    return StreamingResponse(chunks, content_type=CONTENT_TYPE)


async def _check_ordered(store: Store, queue: str) -> None:
    if (await store.get_queue(queue)).kind is not QueueKind.ORDERED:
        raise ConflictError(f"{queue!r} is a work queue: it has items, which are not exported")


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/export/plan",
        handler=plan,
        summary="The partitions of a queue, with the first and last seq that is kept",
        tag="export",
        query=PlanQuery,
        answer=PlanAnswer,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/api/v1/export/read",
        handler=read,
        summary="A range of a partition as an Arrow IPC stream",
        tag="export",
        query=ReadQuery,
        content_type=CONTENT_TYPE.decode(),
        errors=(404, 409, 501),
    ),
)
