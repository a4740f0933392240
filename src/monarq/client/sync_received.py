"""What a pop gives to a synchronous client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar, overload

from monarq.client.portal import Portal
from monarq.client.received import Batch, Received
from monarq.client.times import Moment

T = TypeVar("T")


class SyncReceived(Generic[T]):
    """`Received` without `await`. What can be read of it is there by the same names."""

    def __init__(self, received: Received[T], portal: Portal) -> None:
        self.received = received
        self._portal = portal

    def __getattr__(self, name: str) -> Any:
        return getattr(self.received, name)

    @property
    def payload(self) -> T:
        return self.received.payload

    def ack(self, result: Any = None, *, connection: Any = None) -> None:
        self._portal.run(self.received.ack(result, connection=connection))

    def fail(self, error: str | BaseException = "", *, retry_at: Moment | None = None) -> None:
        self._portal.run(self.received.fail(error, retry_at=retry_at))

    def retry(self, *, at: Moment | None = None) -> None:
        self._portal.run(self.received.retry(at=at))

    def release(self) -> None:
        self._portal.run(self.received.release())

    def bury(self, error: str | BaseException = "") -> None:
        self._portal.run(self.received.bury(error))

    def renew(self, seconds: float) -> datetime:
        return self._portal.run(self.received.renew(seconds))

    def trace(self, event: str, data: Any = None, *, names: Sequence[str] = ()) -> None:
        self._portal.run(self.received.trace(event, data, names=names))

    def __repr__(self) -> str:
        return repr(self.received)


class SyncBatch(Sequence[SyncReceived[T]]):
    """`Batch` without `await`."""

    def __init__(self, batch: Batch[T], portal: Portal) -> None:
        self._batch = batch
        self._portal = portal
        self._messages = [SyncReceived(message, portal) for message in batch]

    @overload
    def __getitem__(self, index: int) -> SyncReceived[T]: ...

    @overload
    def __getitem__(self, index: slice) -> list[SyncReceived[T]]: ...

    def __getitem__(self, index: int | slice) -> SyncReceived[T] | list[SyncReceived[T]]:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[SyncReceived[T]]:
        return iter(self._messages)

    @property
    def lease_id(self) -> str | None:
        return self._batch.lease_id

    @property
    def unanswered(self) -> list[SyncReceived[T]]:
        return [message for message in self._messages if not message.received.answered]

    def ack(self) -> None:
        self._portal.run(self._batch.ack())

    def fail(self, error: str | BaseException = "") -> None:
        self._portal.run(self._batch.fail(error))

    def release(self) -> None:
        self._portal.run(self._batch.release())

    def renew(self, seconds: float) -> None:
        self._portal.run(self._batch.renew(seconds))
