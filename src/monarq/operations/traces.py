"""Traces: notes that consumers leave about a message, found by message or by name."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Raw, Struct, field

from monarq.errors import InvalidRequestError
from monarq.ids import NumberOrText, NumberText
from monarq.model import MAX_TRACE_NAMES, Page, Trace
from monarq.operations.codec import Json, NumberArgument, TimeArgument, check_json
from monarq.operations.operation import Body, Name, Operation, Paged, Role, Route
from monarq.wire.paging import PageAnswer

_TRACES = "/api/v1/traces"

Names = Annotated[list[Name], Meta(max_length=MAX_TRACE_NAMES)]


class TraceBody(Body, frozen=True, kw_only=True, rename="camel"):
    transaction_id: Name
    partition_id: NumberOrText
    data: Annotated[Raw, Meta(description="any JSON value, 1 MiB at most")]
    event_type: Name | None = None
    """`info` if it is left out."""
    trace_names: Names | Name | None = None

    def fields(self) -> dict[str, Any]:
        names = self.trace_names or []
        return {
            "transaction_id": self.transaction_id,
            "partition_id": self.partition_id,
            "data": bytes(self.data),
            "event_type": self.event_type or "info",
            "names": [names] if isinstance(names, str) else names,
        }


class TraceAdded(Struct, frozen=True, kw_only=True, rename="camel"):
    success: bool
    trace_id: NumberText


class AddTrace(Operation[int], frozen=True, kw_only=True):
    """Note something about a message, which need not exist any more; return the trace's id."""

    routes = (
        Route(
            "POST",
            _TRACES,
            "Note something about a message; it need not exist any more",
            role=Role.WRITE,
            body=TraceBody,
            answer=TraceAdded,
            result="trace_id",
            status=201,
        ),
    )

    partition_id: NumberArgument
    transaction_id: Name
    data: Json
    event_type: Name = "info"
    names: Names = field(name="traceNames", default=[])
    """Names under which the trace is found, besides its message."""

    def check(self) -> None:
        check_json(self.data, "data")

    def answer(self, route: Route, result: int) -> TraceAdded:
        return TraceAdded(success=True, trace_id=NumberText(result))


class TraceName(Struct, frozen=True, kw_only=True, rename="camel"):
    trace_name: str


class ListedName(Struct, frozen=True, kw_only=True, rename="camel"):
    name: str


class TraceNamesAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    trace_names: list[TraceName]
    names: list[ListedName]
    """The same, as Queen's command line reads it."""


class ListTraceNames(Paged[str], frozen=True, kw_only=True):
    """List the names that traces have."""

    routes = (
        Route(
            "GET",
            f"{_TRACES}/names",
            "The names that traces have",
            answer=TraceNamesAnswer,
            result="names",
        ),
    )

    search: Name | None = None
    """Part of the name, in any case."""

    def keep(self, row: str) -> bool:
        return self.search is None or self.search.casefold() in row.casefold()

    def answer(self, route: Route, result: Page[str]) -> TraceNamesAnswer:
        return TraceNamesAnswer(
            limit=self.limit,
            offset=self.offset,
            next=result.next,
            trace_names=[TraceName(trace_name=name) for name in result.rows],
            names=[ListedName(name=name) for name in result.rows],
        )

    def read(self, route: Route, answer: TraceNamesAnswer) -> Page[str]:
        return Page([each.name for each in answer.names], answer.next)


class TracesAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    traces: list[Trace]


class ListTraces(Paged[Trace], frozen=True, kw_only=True):
    """List the traces of a message, or those under a name, oldest first.

    Give either `name`, or `partition_id` and `transaction_id`. A message's own id is good in
    place of its transaction id as long as the message is kept.
    """

    bounded = True
    routes = (
        Route(
            "GET",
            f"{_TRACES}/by-name/{{name}}",
            "The traces under a name, oldest first",
            answer=TracesAnswer,
            result="traces",
            name="listTracesByName",
        ),
        Route(
            "GET",
            f"{_TRACES}/{{partitionId}}/{{transactionId}}",
            "The traces of a message, oldest first",
            answer=TracesAnswer,
            result="traces",
            name="listTracesOfMessage",
        ),
    )

    name: Name | None = None
    partition_id: NumberArgument | None = None
    transaction_id: Name | None = None
    created_from: TimeArgument | None = field(name="from", default=None)
    """Only traces that are not older. A date, or a time without a zone, is UTC."""
    created_to: TimeArgument | None = field(name="to", default=None)
    """Only traces that are not newer."""

    def check(self) -> None:
        if (self.partition_id is None) is not (self.transaction_id is None):
            raise InvalidRequestError("transactionId and partitionId belong together")
        if (self.partition_id is None) is (self.name is None):
            raise InvalidRequestError(
                "traces are listed by partitionId and transactionId, or by name"
            )

    def keep(self, row: Trace) -> bool:
        return (self.created_from is None or row.created_at >= self.created_from) and (
            self.created_to is None or row.created_at <= self.created_to
        )

    def row_bytes(self, row: Trace) -> int:
        return len(row.data) + 200
