"""The figures as flat Arrow tables, for Parquet: a column a figure, and a row a bucket where they
are a series."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct

from monarq.spark.pipelines.analyse.figures import (
    Analysis,
    Change,
    ConsumerFigures,
    ErrorFigures,
    Finding,
    GroupFigures,
    JobFigures,
    PartitionFigures,
    QueueFigures,
    Window,
)

_TIME = pa.timestamp("us", tz="UTC")


class _PushRow(Struct, kw_only=True):
    queue: str
    at: int
    pushed: int
    payload_bytes: int


class _AnswerRow(Struct, kw_only=True):
    queue: str
    group: str
    at: int
    completed: int
    failed: int
    dead: int
    expired: int
    waiting_p50: float | None
    waiting_p95: float | None
    waiting_p99: float | None
    processing_p50: float | None
    processing_p95: float | None
    processing_p99: float | None
    backlog: int | None


def arrow_tables(analysis: Analysis) -> dict[str, pa.Table]:
    """By name. Tables with nothing in them have their columns all the same."""
    window = analysis.window
    return {
        "queues": _table(QueueFigures, analysis.queues),
        "groups": _table(GroupFigures, analysis.groups),
        "pushes": _table(_PushRow, _unrolled(window, analysis.pushes, _PushRow)),
        "deliveries": _table(_AnswerRow, _unrolled(window, analysis.deliveries, _AnswerRow)),
        "errors": _table(ErrorFigures, analysis.errors),
        "partitions": _table(PartitionFigures, analysis.partitions),
        "consumers": _table(ConsumerFigures, analysis.consumers),
        "jobs": _table(JobFigures, analysis.jobs),
        "changes": _table(Change, analysis.changes),
        "findings": _table(Finding, analysis.findings),
    }


def _unrolled(
    window: Window | None, series: Sequence[Struct], row: type[Struct]
) -> Iterator[Struct]:
    """A row for each bucket of each series."""
    if window is None:
        return
    for each in series:
        values = msgspec.structs.asdict(each)
        for place in range(window.buckets):
            found = {
                name: (value[place] if value else None) if isinstance(value, list) else value
                for name, value in values.items()
            }
            yield row(at=window.at(place), **found)


def _table(kind: type[Struct], rows: Sequence[Struct] | Iterator[Struct]) -> pa.Table:
    schema = pa.schema(list(_fields(kind)))
    return pa.Table.from_pylist([dict(_values(kind, row)) for row in rows], schema)


def _fields(kind: type[Struct], prefix: str = "") -> Iterator[pa.Field]:
    for name, of in _types(kind):
        if issubclass(of, Struct):
            yield from _fields(of, _prefix(name))
        elif of is int and (name == "at" or name.endswith("_at")):
            yield pa.field(prefix + name, _TIME)
        else:
            yield pa.field(prefix + name, _ARROW[of if of in _ARROW else str])


def _values(kind: type[Struct], row: Struct | None, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, of in _types(kind):
        value = None if row is None else getattr(row, name)
        if issubclass(of, Struct):
            yield from _values(of, value, _prefix(name))
        else:
            yield prefix + name, value


def _prefix(name: str) -> str:
    """The counts of answers need none to be understood."""
    return "" if name == "answers" else f"{name}_"


_ARROW: dict[type, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
}


def _types(kind: type[Struct]) -> Iterator[tuple[str, type]]:
    hints = typing.get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        hint = hints[field.name]
        if isinstance(hint, types.UnionType):
            hint = next(each for each in hint.__args__ if each is not types.NoneType)
        yield field.name, hint
