"""The calls beside the hot path, over HTTP: messages, items, traces and records."""

from __future__ import annotations

import base64
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote

import msgspec

from monarq.client.http_reading import (
    attempts_of,
    item_of,
    record_of,
    stored_message_of,
    trace_of,
)
from monarq.errors import NotFoundError
from monarq.model import (
    Attempt,
    Item,
    ItemState,
    OutputPart,
    Page,
    Record,
    StoredMessage,
    Trace,
)
from monarq.store.validation import check_record, check_trace
from monarq.times import iso_or_none
from monarq.wire.items import ItemDetail, ItemsAnswer
from monarq.wire.messages import MessageDeleted, MessageDetail, MessagesAnswer
from monarq.wire.outputs import OutputAnswer, OutputAppended
from monarq.wire.records import RecordDeleted, RecordRow, RecordsAnswer
from monarq.wire.traces import TraceAdded, TracesAnswer

Call = Callable[..., Coroutine[Any, Any, Any]]

_ITEMS = "/api/v1/items"
_RECORDS = "/api/v1/records"


class HttpEntries:
    """`call` sends a request and decodes the answer: method, path, type, and `query` or `body`."""

    def __init__(self, call: Call) -> None:
        self._call = call

    # --- messages and items ------------------------------------------------------------------

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

    async def list_items(
        self,
        queue: str,
        *,
        state: ItemState | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Item]:
        query = {"queue": queue, "state": state, "limit": limit, "after": after}
        answer = await self._call("GET", _ITEMS, ItemsAnswer, query=query)
        return Page([item_of(row) for row in answer.items], answer.next)

    async def next_items(self, queue: str, *, limit: int = 100) -> list[Item]:
        query = {"queue": queue, "order": "next", "limit": limit}
        answer = await self._call("GET", _ITEMS, ItemsAnswer, query=query)
        return [item_of(row) for row in answer.items]

    async def get_item(self, item_id: str) -> Item:
        return item_of(await self._item(item_id))

    async def _item(self, item_id: str) -> ItemDetail:
        item: ItemDetail = await self._call("GET", f"{_ITEMS}/{quoted(item_id)}", ItemDetail)
        return item

    async def find_item(self, queue: str, transaction_id: str) -> Item:
        query = {"queue": queue, "transactionId": transaction_id}
        answer = await self._call("GET", _ITEMS, ItemsAnswer, query=query)
        if not answer.items:
            raise NotFoundError(f"queue {queue!r} has no item {transaction_id!r}")
        return item_of(answer.items[0])

    async def item_attempts(self, item_id: str) -> list[Attempt]:
        return attempts_of(await self._item(item_id))

    async def cancel_item(self, item_id: str) -> Item:
        path = f"{_ITEMS}/{quoted(item_id)}/cancel"
        return item_of(await self._call("POST", path, ItemDetail))

    async def retry_item(self, item_id: str) -> Item:
        path = f"{_ITEMS}/{quoted(item_id)}/retry"
        return item_of(await self._call("POST", path, ItemDetail))

    async def append_output(self, item_id: str, attempt: int, data: bytes) -> int:
        path = f"{_ITEMS}/{quoted(item_id)}/output"
        body = {"attempt": attempt, "data": base64.b64encode(data).decode()}
        answer = await self._call("POST", path, OutputAppended, body=body)
        return int(answer.size)

    async def read_output(
        self, item_id: str, attempt: int, *, start: int = 0, max_bytes: int = 1 << 20
    ) -> OutputPart:
        path = f"{_ITEMS}/{quoted(item_id)}/output"
        query = {"attempt": attempt, "start": start, "maxBytes": max_bytes}
        answer = await self._call("GET", path, OutputAnswer, query=query)
        return OutputPart(data=base64.b64decode(answer.data), next=answer.next)

    # --- traces and records ------------------------------------------------------------------

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

    async def put_record(
        self,
        kind: str,
        key: str,
        value: bytes,
        *,
        keep_seconds: float | None = None,
        only_new: bool = False,
    ) -> Record:
        check_record(kind, key, value, keep_seconds)
        body: dict[str, Any] = {"value": msgspec.Raw(value), "keepSeconds": keep_seconds}
        if only_new:
            body["onlyNew"] = True
        return record_of(await self._call("PUT", _record(kind, key), RecordRow, body=body))

    async def get_record(self, kind: str, key: str) -> Record:
        return record_of(await self._call("GET", _record(kind, key), RecordRow))

    async def list_records(
        self, kind: str, *, limit: int = 100, after: str | None = None
    ) -> Page[Record]:
        query = {"limit": limit, "after": after}
        path = f"{_RECORDS}/{quoted(kind)}"
        answer = await self._call("GET", path, RecordsAnswer, query=query)
        return Page([record_of(row) for row in answer.records], answer.next)

    async def delete_record(self, kind: str, key: str) -> bool:
        answer = await self._call("DELETE", _record(kind, key), RecordDeleted)
        return bool(answer.deleted)


def quoted(name: str) -> str:
    """A name as one step of a path. `.` and `..` would mean a step nowhere and one up."""
    return "%2E" * len(name) if name in (".", "..") else quote(name, safe="")


def _record(kind: str, key: str) -> str:
    return f"{_RECORDS}/{quoted(kind)}/{quoted(key)}"
