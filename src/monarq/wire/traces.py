"""Traces, in and out."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Raw, Struct, field

from monarq.model import MAX_TRACE_NAMES
from monarq.wire.fields import Name
from monarq.wire.paging import PageAnswer, PageQuery
from monarq.wire.shown import NameFilter, PartitionIdText, TimeFilter, TimeText


class TraceBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    transaction_id: Name
    partition_id: PartitionIdText | Annotated[int, Meta(ge=1, lt=10**18)]
    data: Annotated[Raw, Meta(description="any JSON value, 1 MiB at most")]
    event_type: Name | None = None
    """`info` if it is left out."""
    trace_names: Annotated[list[Name], Meta(max_length=MAX_TRACE_NAMES)] | Name | None = None


class TraceAdded(Struct, frozen=True, kw_only=True, rename="camel"):
    success: bool
    trace_id: str


class TraceRow(Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    transaction_id: str
    partition_id: PartitionIdText
    event_type: str
    trace_names: list[str]
    created_at: TimeText
    data: Annotated[Raw, Meta(description="as it was sent")]


class TracesByNameQuery(PageQuery, frozen=True, kw_only=True, rename="camel"):
    from_: TimeFilter | None = field(default=None, name="from")
    to: TimeFilter | None = None


class TracesAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    traces: list[TraceRow]


class TraceNamesQuery(PageQuery, frozen=True, kw_only=True, rename="camel"):
    search: NameFilter | None = None
    """Part of the name, in any case."""


class TraceName(Struct, frozen=True, kw_only=True, rename="camel"):
    trace_name: str


class ListedName(Struct, frozen=True, kw_only=True, rename="camel"):
    name: str


class TraceNamesAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    trace_names: list[TraceName]
    names: list[ListedName]
    """The same, as Queen's command line reads it."""
