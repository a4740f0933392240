"""Traces: notes that consumers leave about a message, found by message or by name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from msgspec import Raw

from monarq.errors import ConflictError, NotFoundError
from monarq.ids import parse_message_id
from monarq.model import Trace
from monarq.model.pages import Fetch
from monarq.operations.operation import Role
from monarq.server.answers import json_answer
from monarq.server.exchange import Request, Response
from monarq.server.paging import paged
from monarq.server.parameters import (
    partition_number,
    path_name,
    path_partition_id,
    time_or_none,
)
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.store.collecting import collect
from monarq.times import iso
from monarq.wire.paging import PageQuery
from monarq.wire.traces import (
    ListedName,
    TraceAdded,
    TraceBody,
    TraceName,
    TraceNamesAnswer,
    TraceNamesQuery,
    TraceRow,
    TracesAnswer,
    TracesByNameQuery,
)


async def add_trace(service: Service, request: Request) -> Response:
    body: TraceBody = request.body
    names = body.trace_names or []
    trace = await service.broker.store.add_trace(
        Trace(
            partition_id=partition_number(str(body.partition_id)),
            transaction_id=body.transaction_id,
            event_type=body.event_type or "info",
            data=bytes(body.data),
            names=[names] if isinstance(names, str) else names,
        )
    )
    return json_answer(TraceAdded(success=True, trace_id=str(trace.id)), 201)


async def of_message(service: Service, request: Request) -> Response:
    store = service.broker.store
    partition_id, transaction_id = path_partition_id(request), path_name(request, "transactionId")
    if (parse_message_id(transaction_id) or (0,))[0] == partition_id:
        # Its id is good in place of its transaction id, as long as it is kept.
        with contextlib.suppress(NotFoundError, ConflictError):
            transaction_id = (await store.get_message(partition_id, transaction_id)).transaction_id
    return await _listed(
        request.query,
        lambda limit, after: store.list_traces(
            partition_id=partition_id, transaction_id=transaction_id, limit=limit, after=after
        ),
    )


async def by_name(service: Service, request: Request) -> Response:
    store = service.broker.store
    query: TracesByNameQuery = request.query
    name = path_name(request, "name")
    since, until = time_or_none(query.from_, "from"), time_or_none(query.to, "to")
    return await _listed(
        query,
        lambda limit, after: store.list_traces(name=name, limit=limit, after=after),
        lambda trace: (
            (since is None or trace.created_at >= since)
            and (until is None or trace.created_at <= until)
        ),
    )


async def _listed(
    query: PageQuery, fetch: Fetch[Trace], keep: Callable[[Trace], bool] | None = None
) -> Response:
    page = await collect(fetch, query, keep=keep, size=lambda trace: len(trace.data) + 200)
    rows = [
        TraceRow(
            id=str(trace.id),
            transaction_id=trace.transaction_id,
            partition_id=str(trace.partition_id),
            event_type=trace.event_type,
            trace_names=trace.names,
            created_at=iso(trace.created_at),
            data=Raw(trace.data),
        )
        for trace in page.rows
    ]
    return json_answer(TracesAnswer(traces=rows, **paged(query, page)))


async def list_names(service: Service, request: Request) -> Response:
    store = service.broker.store
    query: TraceNamesQuery = request.query
    wanted = query.search.casefold() if query.search is not None else ""
    page = await collect(
        lambda limit, after: store.list_trace_names(limit=limit, after=after),
        query,
        keep=lambda name: wanted in name.casefold(),
    )
    return json_answer(
        TraceNamesAnswer(
            trace_names=[TraceName(trace_name=name) for name in page.rows],
            names=[ListedName(name=name) for name in page.rows],
            **paged(query, page),
        )
    )


ROUTES = (
    Route(
        method="POST",
        path="/api/v1/traces",
        handler=add_trace,
        summary="Note something about a message; it need not exist any more",
        tag="traces",
        role=Role.WRITE,
        body=TraceBody,
        answer=TraceAdded,
        status=201,
    ),
    Route(
        method="GET",
        path="/api/v1/traces/names",
        handler=list_names,
        operation="listTraceNames",
        summary="The names that traces have",
        tag="traces",
        query=TraceNamesQuery,
        answer=TraceNamesAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/traces/by-name/{name}",
        handler=by_name,
        operation="listTracesByName",
        summary="The traces under a name, oldest first",
        tag="traces",
        query=TracesByNameQuery,
        answer=TracesAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/traces/{partitionId}/{transactionId}",
        handler=of_message,
        operation="listTracesOfMessage",
        summary="The traces of a message, oldest first",
        tag="traces",
        query=PageQuery,
        answer=TracesAnswer,
    ),
)
