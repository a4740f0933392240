"""Export for pipelines: what is kept, read without a group or a lease."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from monarq.errors import ConflictError, InvalidRequestError
from monarq.model import QueueKind
from monarq.operations.operation import Role
from monarq.server.answers import json_answer
from monarq.server.arrow_stream import (
    CHUNK_BYTES,
    CHUNK_MESSAGES,
    CONTENT_TYPE,
    Slot,
    arrow_stream,
    require_arrow,
)
from monarq.server.exchange import Request, Response, StreamingResponse
from monarq.server.paging import paged
from monarq.server.parameters import time_or_none
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.store.batches import plan_of, rows_of, segments_of
from monarq.store.collecting import collect
from monarq.store.contract import Store
from monarq.store.positions import check_columns
from monarq.tables import TableKind, arrow_schema, get_table
from monarq.wire.export import (
    ArchivedAnswer,
    ArchivedBody,
    ExportPartitionsQuery,
    ExportQueueQuery,
    LogEndAnswer,
    LogEndQuery,
    MessagesBody,
    PlanAnswer,
    PlanQuery,
    PlanRow,
    ReadQuery,
    RowsBody,
)


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


async def partitions(service: Service, request: Request) -> StreamingResponse:
    query: ExportPartitionsQuery = request.query
    created_from = time_or_none(query.created_from, "createdFrom")
    created_to = time_or_none(query.created_to, "createdTo")
    require_arrow()
    from monarq.store.arrow import PLAN_SCHEMA, plan_batch

    chunks = await arrow_stream(
        PLAN_SCHEMA,
        plan_of(service.broker.store, query.queue, created_from, created_to),
        plan_batch,
        _slot(service, request),
    )
    return StreamingResponse(chunks, content_type=CONTENT_TYPE)


async def read(service: Service, request: Request) -> StreamingResponse:
    query: ReadQuery = request.query
    store = service.broker.store
    partition = await store.get_partition(int(query.partition_id))
    await _check_ordered(store, partition.queue)
    last = partition.last_seq if query.to is None else min(query.to, partition.last_seq)
    columns = None if query.columns is None else query.columns.split(",")
    span = (partition.partition_id, query.from_, last)
    return await _messages(service, request, [span], columns)


async def messages(service: Service, request: Request) -> StreamingResponse:
    body: MessagesBody = request.body
    return await _messages(service, request, body.ranges, body.columns)


async def _messages(
    service: Service,
    request: Request,
    spans: Iterable[Sequence[int]],
    columns: Sequence[str] | None,
) -> StreamingResponse:
    require_arrow()
    from monarq.store.arrow import message_batch

    chosen = get_table("messages").column_names if columns is None else columns
    check_columns("messages", chosen)
    chunks = await arrow_stream(
        arrow_schema("messages", chosen),
        segments_of(
            service.broker.store,
            spans,
            chosen,
            max_bytes=CHUNK_BYTES,
            messages=CHUNK_MESSAGES,
        ),
        lambda segments: message_batch(segments, chosen),
        _slot(service, request),
    )
    return StreamingResponse(chunks, content_type=CONTENT_TYPE)


async def rows(service: Service, request: Request) -> StreamingResponse:
    body: RowsBody = request.body
    require_arrow()
    from monarq.store.arrow import row_batch

    table = get_table(body.table)
    if table.kind is TableKind.MESSAGES:
        raise InvalidRequestError("messages are read by ranges: POST /api/v1/export/messages")
    if table.kind is TableKind.STATE and not (body.after is None and body.until is None):
        raise InvalidRequestError(f"{table.name} is read as it is now: it has no positions")
    chosen = table.column_names if body.columns is None else body.columns
    check_columns(table.name, chosen)
    chunks = await arrow_stream(
        arrow_schema(table.name, chosen),
        rows_of(
            service.broker.store,
            table.name,
            chosen,
            after=body.after,
            until=body.until,
            queues=body.queues,
        ),
        lambda read: row_batch(table.name, chosen, read),
        _slot(service, request),
    )
    return StreamingResponse(chunks, content_type=CONTENT_TYPE)


async def log_end(service: Service, request: Request) -> Response:
    query: LogEndQuery = request.query
    position = await service.broker.store.log_end(query.table)
    return json_answer(LogEndAnswer(table=query.table, position=position))


async def archived(service: Service, request: Request) -> Response:
    query: ExportQueueQuery = request.query
    positions = await service.broker.store.archived(query.queue)
    return json_answer(
        ArchivedAnswer(queue=query.queue, positions={str(n): seq for n, seq in positions.items()})
    )


async def set_archived(service: Service, request: Request) -> Response:
    body: ArchivedBody = request.body
    positions = {int(number): seq for number, seq in body.positions.items()}
    await service.broker.store.set_archived(body.queue, positions)
    return json_answer(ArchivedAnswer(queue=body.queue, positions=body.positions))


def _slot(service: Service, request: Request) -> Slot:
    return partial(service.export_slots.slot, request.principal.subject or "")


async def _check_ordered(store: Store, queue: str) -> None:
    if (await store.queue_settings(queue)).kind is not QueueKind.ORDERED:
        raise ConflictError(f"{queue!r} is a work queue: it has items, which are not exported")


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/export/plan",
        handler=plan,
        operation="planExport",
        summary="The partitions of a queue, with the first and last seq that is kept",
        tag="export",
        query=PlanQuery,
        answer=PlanAnswer,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/api/v1/export/partitions",
        handler=partitions,
        operation="listExportPartitions",
        summary="The whole plan of a queue as one Arrow IPC stream",
        tag="export",
        query=ExportPartitionsQuery,
        content_type=CONTENT_TYPE.decode(),
        errors=(404, 409, 501),
    ),
    Route(
        method="GET",
        path="/api/v1/export/read",
        handler=read,
        operation="readExport",
        summary="A range of a partition as an Arrow IPC stream",
        tag="export",
        query=ReadQuery,
        content_type=CONTENT_TYPE.decode(),
        errors=(404, 409, 501),
    ),
    Route(
        method="POST",
        path="/api/v1/export/messages",
        handler=messages,
        operation="exportMessages",
        summary="Many ranges of partitions as one Arrow IPC stream",
        tag="export",
        body=MessagesBody,
        content_type=CONTENT_TYPE.decode(),
        errors=(409, 501),
    ),
    Route(
        method="POST",
        path="/api/v1/export/rows",
        handler=rows,
        operation="exportRows",
        summary="Rows of a log, or of a table as it is now, as an Arrow IPC stream",
        tag="export",
        body=RowsBody,
        content_type=CONTENT_TYPE.decode(),
        errors=(409, 501),
    ),
    Route(
        method="GET",
        path="/api/v1/export/log-end",
        handler=log_end,
        operation="getLogEnd",
        summary="Up to where a log can be read now",
        tag="export",
        query=LogEndQuery,
        answer=LogEndAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/export/archived",
        handler=archived,
        operation="getArchived",
        summary="Up to which seq each partition of a queue is archived",
        tag="export",
        query=ExportQueueQuery,
        answer=ArchivedAnswer,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path="/api/v1/export/archived",
        handler=set_archived,
        summary="Say up to which seq partitions are archived: retention may have what is",
        tag="export",
        role=Role.WRITE,
        body=ArchivedBody,
        answer=ArchivedAnswer,
        errors=(404, 409),
    ),
)
