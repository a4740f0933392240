"""Runs of pipelines, archives and analyses, out."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from monarq.wire.paging import Limit
from monarq.wire.shown import TimeText


class RunsQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    limit: Limit = 100


class RunRow(Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    pipeline: str
    outcome: Annotated[str, Meta(description="running, succeeded, failed, stopped or killed")]
    started_at: TimeText
    updated_at: TimeText
    ended_at: TimeText | None
    rows: int
    lake: str | None
    queues: list[str]
    """Which were asked for; all, if empty."""
    error: str | None
    host: str


class RunsAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    runs: list[RunRow]
    total: int


class ArchivedQueueRow(Struct, frozen=True, kw_only=True, rename="camel"):
    queue: str
    rows: int
    """Messages of it in the lake."""
    behind: int
    """Messages that were not, when it was last looked."""
    archived_at: TimeText


class ArchiveRow(Struct, frozen=True, kw_only=True, rename="camel"):
    lake: str
    at: TimeText
    queues: list[ArchivedQueueRow]


class ArchivesAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    archives: list[ArchiveRow]


class AnalysisRow(Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    at: TimeText
    lake: str
    findings: list[dict[str, Any]]


class AnalysesAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    analyses: list[AnalysisRow]
