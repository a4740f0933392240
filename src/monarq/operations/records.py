"""Records: small JSON values kept beside the queues by kind and key, such as workers and runs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from monarq.model import Record
from monarq.operations.codec import Json, check_json
from monarq.operations.operation import Name, Operation, Paged, Role, Route
from monarq.wire.paging import PageAnswer

WORKER_KIND = "worker"
STOP_KIND = "worker-stop"
"""Records that ask a worker to stop."""
SCHEDULE_KIND = "schedule"
SETTING_KIND = "job-setting"
HISTORY_KIND = "history"
"""Records of the dashboard's charts."""
TRUSTED_KINDS = frozenset({WORKER_KIND, STOP_KIND, SCHEDULE_KIND, SETTING_KIND, HISTORY_KIND})
"""Kinds of records that workers, tools and the dashboard act on."""

_RECORDS = "/api/v1/records/{kind}"
_RECORD = f"{_RECORDS}/{{key}}"


class RecordsAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    records: list[Record]


class RecordDeleted(Struct, frozen=True, kw_only=True, rename="camel"):
    deleted: bool
    """False if there was no such record."""


class ListRecords(Paged[Record], frozen=True, kw_only=True):
    """List the records of a kind by key."""

    bounded = True
    routes = (
        Route(
            "GET",
            _RECORDS,
            "Records of a kind, such as `worker`, by key",
            answer=RecordsAnswer,
            result="records",
        ),
    )

    kind: Name

    def row_bytes(self, row: Record) -> int:
        return len(row.value) + 300


class GetRecord(Operation[Record], frozen=True, kw_only=True):
    """Return a record; raise `NotFoundError` if there is none."""

    routes = (Route("GET", _RECORD, "One record", errors=(404,)),)

    kind: Name
    key: Name


class PutRecord(Operation[Record], frozen=True, kw_only=True):
    """Create or replace a record and return it."""

    routes = (Route("PUT", _RECORD, "Make or replace a record", role=Role.WRITE),)

    kind: Name
    key: Name
    value: Json
    keep_seconds: Annotated[float, Meta(ge=0, le=10 * 365 * 86_400)] | None = None
    """Delete the record after this time; null keeps it."""
    only_new: bool = False
    """Keep an existing record unchanged and return it."""

    def check(self) -> None:
        check_json(self.value, "value")

    def needs_commands(self) -> str | None:
        return _trusted(self.kind)


class DeleteRecord(Operation[bool], frozen=True, kw_only=True):
    """Delete a record; return whether there was one."""

    routes = (
        Route(
            "DELETE",
            _RECORD,
            "Remove a record",
            role=Role.WRITE,
            answer=RecordDeleted,
            result="deleted",
        ),
    )

    kind: Name
    key: Name

    def needs_commands(self) -> str | None:
        return _trusted(self.kind)


def _trusted(kind: str) -> str | None:
    return f"writing a record of the kind {kind!r}" if kind in TRUSTED_KINDS else None
