"""The calls beside the hot path, over HTTP: messages, items, traces and records."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from monarq.client.http_operations import quoted, send
from monarq.client.http_reading import (
    stored_message_of,
    trace_of,
)
from monarq.model import (
    Page,
    StoredMessage,
    Trace,
)
from monarq.operations.calls import Calls
from monarq.operations.operation import Operation
from monarq.store.validation import check_trace
from monarq.times import iso_or_none
from monarq.wire.messages import MessageDeleted, MessageDetail, MessagesAnswer
from monarq.wire.traces import TraceAdded, TracesAnswer

Call = Callable[..., Coroutine[Any, Any, Any]]

R = TypeVar("R")


class HttpEntries(Calls):
    """`call` sends a request and decodes the answer: method, path, type, and `query` or `body`."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def call(self, request: Operation[R]) -> R:
        return await send(self._call, request)

    # --- messages ---------------------------------------------------------------------------

    async def list_messages(
        self,
        queue: str,
        *,
        partition: str | None = None,
        first_seq: int | None = None,
        created_from: int | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[StoredMessage]:
        query = {
            "queue": queue,
            "partition": partition,
            "firstSeq": first_seq,
            "from": iso_or_none(created_from),
            "limit": limit,
            "after": after,
        }
        answer = await self._call("GET", "/api/v1/messages", MessagesAnswer, query=query)
        return Page([stored_message_of(row) for row in answer.messages], answer.next)

    async def get_message(self, partition_id: int, transaction_id: str) -> StoredMessage:
        path = f"/api/v1/messages/{partition_id}/{quoted(transaction_id)}"
        return stored_message_of(await self._call("GET", path, MessageDetail))

    async def delete_message(self, partition_id: int, transaction_id: str) -> None:
        path = f"/api/v1/messages/{partition_id}/{quoted(transaction_id)}"
        await self._call("DELETE", path, MessageDeleted)

    # --- traces -----------------------------------------------------------------------------

    async def add_trace(self, trace: Trace) -> Trace:
        check_trace(trace)
        body = {
            "partitionId": str(trace.partition_id),
            "transactionId": trace.transaction_id,
            "eventType": trace.event_type,
            "data": msgspec.Raw(trace.data),
            "traceNames": trace.names,
        }
        answer = await self._call("POST", "/api/v1/traces", TraceAdded, body=body)
        return msgspec.structs.replace(trace, id=int(answer.trace_id))

    async def list_traces(
        self,
        *,
        partition_id: int | None = None,
        transaction_id: str | None = None,
        name: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Trace]:
        if name is not None:
            path = f"/api/v1/traces/by-name/{quoted(name)}"
        else:
            path = f"/api/v1/traces/{partition_id}/{quoted(transaction_id or '')}"
        query = {"limit": limit, "after": after}
        answer = await self._call("GET", path, TracesAnswer, query=query)
        return Page([trace_of(row) for row in answer.traces], answer.next)
