"""The calls beside the hot path, over HTTP: operations and messages."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from monarq.client.http_operations import quoted, send
from monarq.client.http_reading import (
    stored_message_of,
)
from monarq.model import (
    Page,
    StoredMessage,
)
from monarq.operations.calls import Calls
from monarq.operations.operation import Operation
from monarq.times import iso_or_none
from monarq.wire.messages import MessageDeleted, MessageDetail, MessagesAnswer

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
