"""Pushes and acks that happen together, or not at all."""

from __future__ import annotations

from typing import Any, TypeVar

from monarq.client.handlers import error_text
from monarq.client.link import Link
from monarq.client.queue import AsyncQueue
from monarq.client.received import Received
from monarq.errors import InvalidRequestError
from monarq.model import Ack, Acked, AckStatus, Push, Pushed, Transaction

T = TypeVar("T")


class AsyncTransaction:
    """For `async with`: carried out when the block is left, unless it raised. The leases of all
    messages that are answered in it must be live then, or nothing happens."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._operations: list[Push | Ack] = []
        self._messages: list[Received[Any]] = []
        self._is_over = False
        self.results: list[list[Pushed] | Acked] = []
        """One for each operation, in order, once the block is left."""

    def push(self, queue: AsyncQueue[T], payload: T, **options: Any) -> None:
        """Takes what `AsyncQueue.push` takes."""
        if not isinstance(queue, AsyncQueue):
            raise InvalidRequestError(f"queue must be a queue of a client, not {queue!r}")
        self._add(Push([queue.item(payload, **options)]))

    def ack(self, message: Received[Any]) -> None:
        self._answer(message, AckStatus.COMPLETED)

    def fail(self, message: Received[Any], error: str | BaseException = "") -> None:
        self._answer(message, AckStatus.FAILED, error)

    def bury(self, message: Received[Any], error: str | BaseException = "") -> None:
        self._answer(message, AckStatus.DEAD, error)

    def _answer(
        self, message: Received[Any], status: AckStatus, error: str | BaseException = ""
    ) -> None:
        if not isinstance(message, Received):
            raise InvalidRequestError(f"message must be one that was popped, not {message!r}")
        self._add(message.to_ack(status, error=error_text(error) or None))
        self._messages.append(message)

    def _add(self, operation: Push | Ack) -> None:
        if self._is_over:
            raise InvalidRequestError("the transaction is over: begin another one")
        self._operations.append(operation)

    async def __aenter__(self) -> AsyncTransaction:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._is_over = True
        if kind is not None or not self._operations:
            return
        leases = {message.lease_id for message in self._messages if message.lease_id}
        done = await self._link.transaction(Transaction(self._operations, sorted(leases)))
        self.results = done.results
        for message in self._messages:
            message.answered = True
