"""What pipelines have done: their runs, how far archives have come, and analyses. Read from the
records that they leave; no pipeline is run here."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from monarq.errors import NotFoundError
from monarq.model import Record
from monarq.pipeline_records import ANALYSIS_KIND, REPORT_KIND, unpack_report
from monarq.pipeline_runs import ARCHIVE_KIND, RUN_KIND, RUNS_KEPT, Archive, Run, as_seen
from monarq.record_values import Micros, decode_value
from monarq.server.answers import json_answer
from monarq.server.exchange import Request, Response
from monarq.server.paging import few_records
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.times import iso, iso_or_none
from monarq.wire.pipeline import (
    AnalysesAnswer,
    AnalysisRow,
    ArchivedQueueRow,
    ArchiveRow,
    ArchivesAnswer,
    RunRow,
    RunsAnswer,
    RunsQuery,
)

HTML = b"text/html; charset=utf-8"
_LATEST = "latest"
#: A report holds what senders wrote. It is escaped there; here nothing may run all the same.
_POLICY = (
    b"sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
)
_REPORT_HEADERS = (
    (b"Content-Security-Policy", _POLICY),
    (b"X-Content-Type-Options", b"nosniff"),
)


class _AnalysisOutline(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a list shows of an analysis."""

    id: str
    generated_at: Micros
    lake: str = ""
    findings: list[dict[str, Any]] = []


async def runs(service: Service, request: Request) -> Response:
    query: RunsQuery = request.query
    now = service.clock.now()
    found = [as_seen(run, now) for run in await _decoded(service, RUN_KIND, Run)]
    rows = [
        RunRow(
            id=run.id,
            pipeline=run.pipeline,
            outcome=run.outcome,
            started_at=iso(run.started),
            updated_at=iso(run.updated),
            ended_at=iso_or_none(run.ended),
            rows=run.rows,
            lake=run.lake,
            queues=run.queues,
            error=run.error,
            host=run.host,
        )
        for run in found[::-1][: query.limit]
    ]
    return json_answer(RunsAnswer(runs=rows, total=len(found)))


async def archives(service: Service, request: Request) -> Response:
    rows = [
        ArchiveRow(
            lake=archive.lake,
            at=iso(archive.at),
            queues=[
                ArchivedQueueRow(
                    queue=each.queue,
                    rows=each.rows,
                    behind=each.behind,
                    archived_at=iso(each.archived_at),
                )
                for each in archive.queues
            ],
        )
        for archive in await _decoded(service, ARCHIVE_KIND, Archive)
    ]
    return json_answer(ArchivesAnswer(archives=rows))


async def analyses(service: Service, request: Request) -> Response:
    found = await _decoded(service, ANALYSIS_KIND, _AnalysisOutline)
    rows = [
        AnalysisRow(id=one.id, at=iso(one.generated_at), lake=one.lake, findings=one.findings)
        for one in found[::-1]
    ]
    return json_answer(AnalysesAnswer(analyses=rows))


async def analysis(service: Service, request: Request) -> Response:
    return Response(200, (await _record(service, ANALYSIS_KIND, request.path["id"])).value)


async def report(service: Service, request: Request) -> Response:
    record = await _record(service, REPORT_KIND, request.path["id"])
    page = await asyncio.to_thread(lambda: unpack_report(record.value).encode())
    return Response(200, page, HTML, _REPORT_HEADERS)


async def _records(service: Service, kind: str) -> list[Record]:
    """By key, and so by time. Pipelines keep no more than this many."""
    store = service.broker.store
    return await few_records(
        lambda limit, after: store.list_records(kind, limit=limit, after=after),
        most=5 * RUNS_KEPT,
    )


async def _record(service: Service, kind: str, key: str) -> Record:
    if key != _LATEST:
        return await service.broker.store.get_record(kind, key)
    found = await _records(service, kind)
    if not found:
        raise NotFoundError("there is no analysis yet: `monarq pipeline analyse` makes one")
    return found[-1]


async def _decoded(service: Service, kind: str, value: type[Any]) -> list[Any]:
    """Return the values of the records that are not malformed. They are decoded in a thread,
    since together they may have megabytes."""
    records = await _records(service, kind)

    def decode() -> list[Any]:
        return [one for record in records if (one := decode_value(record, value)) is not None]

    return await asyncio.to_thread(decode)


_ANALYSIS = "/api/v1/pipeline/analyses/{id}"

ROUTES = (
    Route(
        method="GET",
        path="/api/v1/pipeline/runs",
        handler=runs,
        operation="listPipelineRuns",
        summary="Runs of pipelines, the newest first",
        tag="pipeline",
        query=RunsQuery,
        answer=RunsAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/pipeline/archives",
        handler=archives,
        operation="listArchives",
        summary="How far the archive in each lake has come",
        tag="pipeline",
        answer=ArchivesAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/pipeline/analyses",
        handler=analyses,
        operation="listAnalyses",
        summary="Analyses with their findings, the newest first",
        tag="pipeline",
        answer=AnalysesAnswer,
    ),
    Route(
        method="GET",
        path=_ANALYSIS,
        handler=analysis,
        operation="getAnalysis",
        summary="The figures of an analysis; `latest` is the newest one",
        tag="pipeline",
        answer=dict[str, Any],
        errors=(404,),
    ),
    Route(
        method="GET",
        path=f"{_ANALYSIS}/report",
        handler=report,
        operation="getAnalysisReport",
        summary="An analysis as a page for people",
        tag="pipeline",
        content_type="text/html; charset=utf-8",
        errors=(404, 409),
    ),
)
