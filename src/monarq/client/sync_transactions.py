"""Transactions of a synchronous client."""

from __future__ import annotations

from typing import Any, TypeVar

from monarq.client.portal import Portal
from monarq.client.sync_queue import SyncQueue
from monarq.client.sync_received import SyncReceived
from monarq.client.transactions import AsyncTransaction
from monarq.model import Acked, Pushed

T = TypeVar("T")


class SyncTransaction:
    """`AsyncTransaction` for `with`."""

    def __init__(self, transaction: AsyncTransaction, portal: Portal) -> None:
        self._transaction = transaction
        self._portal = portal

    @property
    def results(self) -> list[list[Pushed] | Acked]:
        return self._transaction.results

    def push(self, queue: SyncQueue[T], payload: T, **options: Any) -> None:
        self._transaction.push(_unwrapped(queue, "queue"), payload, **options)

    def ack(self, message: SyncReceived[Any]) -> None:
        self._transaction.ack(_unwrapped(message, "received"))

    def fail(self, message: SyncReceived[Any], error: str | BaseException = "") -> None:
        self._transaction.fail(_unwrapped(message, "received"), error)

    def bury(self, message: SyncReceived[Any], error: str | BaseException = "") -> None:
        self._transaction.bury(_unwrapped(message, "received"), error)

    def __enter__(self) -> SyncTransaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._portal.run(self._transaction.__aexit__(kind))


def _unwrapped(value: object, name: str) -> Any:
    """Return what a wrapper has by this name. `AsyncTransaction` refuses all other values."""
    return getattr(value, name, value)
