"""The calls beside the hot path, over HTTP."""

from __future__ import annotations

import base64
from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from monarq.client.http_reading import (
    attempts_of,
    dead_letter_of,
    group_of,
    item_of,
    micros_or_none,
    queue_of,
    record_of,
    stats_of,
    stored_message_of,
    trace_of,
)
from monarq.errors import NotFoundError
from monarq.model import (
    Attempt,
    Cursor,
    DeadLetter,
    DeadLetterFilter,
    Group,
    Item,
    ItemState,
    OutputPart,
    Page,
    Queue,
    QueueKind,
    QueueOptions,
    QueueStats,
    Record,
    Seek,
    StartFrom,
    StoredMessage,
    Trace,
)
from monarq.times import iso, iso_or_none, parse_time
from monarq.wire.configure import ConfigureAnswer
from monarq.wire.dead_letters import DeadLettersAnswer, Purged, Redriven
from monarq.wire.groups import (
    CursorRow,
    GroupAnswer,
    GroupDeleted,
    GroupsAnswer,
    Sought,
    Subscribed,
)
from monarq.wire.items import ItemDetail, ItemsAnswer
from monarq.wire.messages import MessageDeleted, MessageDetail, MessagesAnswer
from monarq.wire.outputs import OutputAnswer, OutputAppended
from monarq.wire.queues import QueueCleared, QueueDeleted, QueuePaused, QueueRow, QueuesAnswer
from monarq.wire.records import RecordDeleted, RecordRow, RecordsAnswer
from monarq.wire.traces import TraceAdded, TracesAnswer

Call = Callable[..., Coroutine[Any, Any, Any]]

_QUEUES = "/api/v1/resources/queues"
_GROUPS = "/api/v1/consumer-groups"
_ITEMS = "/api/v1/items"
_RECORDS = "/api/v1/records"


class HttpAdmin:
    """`call` sends a request and decodes the answer: method, path, type, and `query` or `body`."""

    def __init__(self, call: Call) -> None:
        self._call = call

    # --- queues ------------------------------------------------------------------------------

    async def configure(
        self,
        name: str,
        *,
        kind: QueueKind | None = None,
        namespace: str | None = None,
        task: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Queue:
        names = {info.name: info.encode_name for info in msgspec.structs.fields(QueueOptions)}
        body = {
            "queue": name,
            "kind": kind,
            "namespace": namespace,
            "task": task,
            "options": {names.get(key, key): value for key, value in (options or {}).items()},
        }
        await self._call("POST", "/api/v1/configure", ConfigureAnswer, body=body)
        return await self.get_queue(name)

    async def get_queue(self, name: str) -> Queue:
        return queue_of(await self._queue_row(name))

    async def _queue_row(self, name: str) -> QueueRow:
        row: QueueRow = await self._call("GET", f"{_QUEUES}/{quoted(name)}", QueueRow)
        return row

    async def list_queues(
        self,
        *,
        namespace: str | None = None,
        task: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Queue]:
        query = {"namespace": namespace, "task": task, "limit": limit, "after": after}
        answer = await self._call("GET", _QUEUES, QueuesAnswer, query=query)
        return Page([queue_of(row) for row in answer.queues], answer.next)

    async def delete_queue(self, name: str) -> bool:
        answer = await self._call("DELETE", f"{_QUEUES}/{quoted(name)}", QueueDeleted)
        return bool(answer.deleted)

    async def clear_queue(self, name: str) -> int:
        answer = await self._call("POST", f"{_QUEUES}/{quoted(name)}/clear", QueueCleared)
        return int(answer.cleared)

    async def set_paused(self, name: str, paused: bool) -> Queue:
        verb = "pause" if paused else "resume"
        await self._call("POST", f"{_QUEUES}/{quoted(name)}/{verb}", QueuePaused)
        return await self.get_queue(name)

    async def queue_stats(
        self, *, queue: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[QueueStats]:
        if queue is not None:
            return Page([stats_of(await self._queue_row(queue))])
        query = {"limit": limit, "after": after}
        answer = await self._call("GET", _QUEUES, QueuesAnswer, query=query)
        return Page([stats_of(row) for row in answer.queues], answer.next)

    # --- groups ------------------------------------------------------------------------------

    async def list_groups(
        self,
        *,
        queue: str | None = None,
        group: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Group]:
        query = {"queue": queue, "limit": limit, "after": after}
        if group is None:
            answer = await self._call("GET", _GROUPS, GroupsAnswer, query=query)
            return Page([group_of(row) for row in answer.consumer_groups], answer.next)
        try:
            found = await self._call("GET", f"{_GROUPS}/{quoted(group)}", GroupAnswer, query=query)
        except NotFoundError:
            return Page([])
        return Page([group_of(row) for row in found.queues], None if queue else found.next)

    async def list_cursors(
        self, queue: str, group: str, *, limit: int = 100, after: str | None = None
    ) -> Page[Cursor]:
        query = {"queue": queue, "limit": limit, "after": after}
        answer = await self._call("GET", f"{_GROUPS}/{quoted(group)}", GroupAnswer, query=query)
        return Page(
            [_cursor_of(row, queue, group) for each in answer.queues for row in each.partitions],
            next((each.partitions_next for each in answer.queues), None),
        )

    async def subscribe(
        self,
        group: str,
        start: StartFrom | int,
        *,
        queue: str | None = None,
        namespace: str | None = None,
        task: str | None = None,
    ) -> int:
        body = {
            "start": start if isinstance(start, StartFrom) else None,
            "subscriptionTimestamp": None if isinstance(start, StartFrom) else iso(start),
            "queue": queue,
            "namespace": namespace,
            "task": task,
        }
        path = f"{_GROUPS}/{quoted(group)}/subscription"
        answer = await self._call("POST", path, Subscribed, body=body)
        said = answer.subscription_timestamp
        return 0 if said is None else parse_time(said, "subscriptionTimestamp")

    async def seek(self, request: Seek) -> int:
        path = f"{_GROUPS}/{quoted(request.group)}/queues/{quoted(request.queue)}"
        if request.partition is not None:
            path += f"/partitions/{quoted(request.partition)}"
        body = {"to": request.to, "timestamp": iso_or_none(request.time), "seq": request.seq}
        answer = await self._call("POST", f"{path}/seek", Sought, body=body)
        return int(answer.lag)

    async def delete_group(
        self, group: str, *, queue: str | None = None, forget_start: bool = True
    ) -> int:
        path = f"{_GROUPS}/{quoted(group)}"
        if queue is not None:
            path += f"/queues/{quoted(queue)}"
        query = {"deleteMetadata": "true" if forget_start else "false"}
        answer = await self._call("DELETE", path, GroupDeleted, query=query)
        return int(answer.queues)

    # --- dead letters ------------------------------------------------------------------------

    async def list_dead_letters(
        self, which: DeadLetterFilter, *, limit: int = 100, after: str | None = None
    ) -> Page[DeadLetter]:
        query = {**_filter(which), "limit": limit, "after": after}
        answer = await self._call("GET", "/api/v1/dlq", DeadLettersAnswer, query=query)
        return Page([dead_letter_of(row) for row in answer.messages], answer.next)

    async def count_dead_letters(self, which: DeadLetterFilter) -> int:
        query = {**_filter(which), "limit": 1}
        answer = await self._call("GET", "/api/v1/dlq", DeadLettersAnswer, query=query)
        return int(answer.total)

    async def redrive(
        self, which: DeadLetterFilter, *, to: str | None = None, limit: int = 1000
    ) -> int:
        body = {**_choice(which), "toQueue": to, "limit": limit}
        answer = await self._call("POST", "/api/v1/dlq/redrive", Redriven, body=body)
        return int(answer.redriven)

    async def purge_dead_letters(self, which: DeadLetterFilter) -> int:
        answer = await self._call("DELETE", "/api/v1/dlq", Purged, query=_choice(which))
        return int(answer.deleted)

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
        self, kind: str, key: str, value: bytes, *, keep_seconds: float | None = None
    ) -> Record:
        body = {"value": msgspec.Raw(value), "keepSeconds": keep_seconds}
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


def _filter(which: DeadLetterFilter) -> dict[str, Any]:
    return {
        "queue": which.queue,
        "consumerGroup": which.group,
        "partition": which.partition,
        "from": iso_or_none(which.failed_from),
        "to": iso_or_none(which.failed_to),
        "error": which.error,
        "ids": None if which.ids is None else [str(number) for number in which.ids],
    }


def _choice(which: DeadLetterFilter) -> dict[str, Any]:
    """A filter of what is to be changed: that it means everything has to be said."""
    chosen = _filter(which)
    if all(value is None for value in chosen.values()):
        chosen["all"] = True
    return chosen


def _cursor_of(row: CursorRow, queue: str, group: str) -> Cursor:
    return Cursor(
        group=group,
        queue=queue,
        partition=row.partition,
        partition_id=int(row.partition_id),
        position=row.position,
        last_seq=row.last_seq,
        lag=row.lag,
        available_at=micros_or_none(row.available_at),
        lease_until=micros_or_none(row.lease_until),
    )
