"""Records beside the queues: workers, schedules, runs."""

from __future__ import annotations

from msgspec import Raw

from monarq.model import Record
from monarq.server.answers import json_answer
from monarq.server.exchange import Request, Response, Role
from monarq.server.paging import collect, paged, record_size
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.server.watch.history import KIND as HISTORY_KIND
from monarq.server.watch.workers import SCHEDULE_KIND, STOP_KIND, WORKER_KIND
from monarq.times import iso, iso_or_none
from monarq.wire.paging import PageQuery
from monarq.wire.records import RecordBody, RecordDeleted, RecordRow, RecordsAnswer

TRUSTED_KINDS = frozenset({WORKER_KIND, STOP_KIND, SCHEDULE_KIND, "job-setting", HISTORY_KIND})
"""Kinds of records that workers, tools and the dashboard act on."""


async def list_records(service: Service, request: Request) -> Response:
    query: PageQuery = request.query
    page = await collect(
        lambda limit, after: service.broker.store.list_records(
            request.path["kind"], limit=limit, after=after
        ),
        query,
        size=record_size,
    )
    return json_answer(
        RecordsAnswer(records=[_row(record) for record in page.rows], **paged(query, page))
    )


async def get_record(service: Service, request: Request) -> Response:
    store = service.broker.store
    return json_answer(_row(await store.get_record(request.path["kind"], request.path["key"])))


async def put_record(service: Service, request: Request) -> Response:
    body: RecordBody = request.body
    _check_may_write(request)
    record = await service.broker.store.put_record(
        request.path["kind"],
        request.path["key"],
        bytes(body.value),
        keep_seconds=body.keep_seconds,
        only_new=body.only_new,
    )
    return json_answer(_row(record))


async def delete_record(service: Service, request: Request) -> Response:
    _check_may_write(request)
    store = service.broker.store
    deleted = await store.delete_record(request.path["kind"], request.path["key"])
    return json_answer(RecordDeleted(deleted=deleted))


def _check_may_write(request: Request) -> None:
    kind = request.path["kind"]
    if kind in TRUSTED_KINDS:
        request.principal.check_may_run_commands(f"writing a record of the kind {kind!r}")


def _row(record: Record) -> RecordRow:
    return RecordRow(
        kind=record.kind,
        key=record.key,
        value=Raw(record.value),
        updated_at=iso(record.updated_at),
        expires_at=iso_or_none(record.expires_at),
    )


_RECORDS = "/api/v1/records/{kind}"
_RECORD = f"{_RECORDS}/{{key}}"

ROUTES = (
    Route(
        method="GET",
        path=_RECORDS,
        handler=list_records,
        summary="Records of a kind, such as `worker`, by key",
        tag="records",
        query=PageQuery,
        answer=RecordsAnswer,
    ),
    Route(
        method="GET",
        path=_RECORD,
        handler=get_record,
        summary="One record",
        tag="records",
        answer=RecordRow,
        errors=(404,),
    ),
    Route(
        method="PUT",
        path=_RECORD,
        handler=put_record,
        summary="Make or replace a record",
        tag="records",
        role=Role.WRITE,
        body=RecordBody,
        answer=RecordRow,
    ),
    Route(
        method="DELETE",
        path=_RECORD,
        handler=delete_record,
        summary="Remove a record",
        tag="records",
        role=Role.WRITE,
        answer=RecordDeleted,
    ),
)
