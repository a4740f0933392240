"""A queue, as a synchronous client holds it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from monarq.client.buffering import PushBuffer
from monarq.client.consuming import Consumer, Handler
from monarq.client.portal import Portal
from monarq.client.queue import AsyncQueue
from monarq.client.received import Batch, Received
from monarq.client.sync_received import SyncBatch, SyncReceived
from monarq.client.times import Moment
from monarq.model import (
    DEFAULT_GROUP,
    ConfiguredQueue,
    Group,
    Page,
    PartitionStats,
    Pushed,
    QueueCounts,
    QueueInfo,
    SeekTo,
    StartFrom,
)
from monarq.operations.dead_letters import DeadLetterPage

T = TypeVar("T")


class SyncQueue(Generic[T]):
    """`AsyncQueue` without `await`; options are those of the call of the same name there."""

    def __init__(self, queue: AsyncQueue[T], portal: Portal) -> None:
        self.queue = queue
        self._portal = portal

    @property
    def name(self) -> str:
        return self.queue.name

    def partition(self, name: str) -> SyncQueue[T]:
        return SyncQueue(self.queue.partition(name), self._portal)

    # --- messages --------------------------------------------------------------------------

    def push(self, payload: T, **options: Any) -> Pushed:
        return self._portal.run(self.queue.push(payload, **options))

    def push_many(self, payloads: Iterable[T], *, connection: Any = None) -> list[Pushed]:
        return self._portal.run(self.queue.push_many(payloads, connection=connection))

    def buffer(self, *, max_count: int = 1000, max_seconds: float = 0.1) -> SyncBuffer[T]:
        return SyncBuffer(
            self.queue.buffer(max_count=max_count, max_seconds=max_seconds), self._portal
        )

    def pop(self, batch: int = 1, **options: Any) -> SyncBatch[T]:
        return SyncBatch(self._portal.run(self.queue.pop(batch, **options)), self._portal)

    def messages(self, **options: Any) -> Iterator[SyncReceived[T]]:
        messages = self.queue.messages(**options)

        async def following() -> Received[T]:
            return await anext(messages)

        try:
            while True:
                yield SyncReceived(self._portal.run(following()), self._portal)
        finally:
            if self._portal.is_open:
                self._portal.run(messages.aclose())

    def __iter__(self) -> Iterator[SyncReceived[T]]:
        return self.messages()

    def consumer(self, handler: Handler, *, each: bool = True, **options: Any) -> SyncConsumer[T]:
        def handle(what: Received[T] | Batch[T]) -> Any:
            return handler(
                SyncReceived(what, self._portal)
                if isinstance(what, Received)
                else SyncBatch(what, self._portal)
            )

        return SyncConsumer(self.queue.consumer(handle, each=each, **options), self._portal)

    def consume(self, handler: Handler, **options: Any) -> None:
        """Runs until it is interrupted (Ctrl-C), and then finishes what it has begun."""
        with self.consumer(handler, **options) as consumer:
            consumer.wait()

    # --- the queue itself, its groups and dead letters ---------------------------------------

    def configure(self, **options: Any) -> ConfiguredQueue:
        return self._portal.run(self.queue.configure(**options))

    def info(self) -> QueueInfo:
        return self._portal.run(self.queue.info())

    def stats(self) -> QueueCounts:
        return self._portal.run(self.queue.stats())

    def delete(self) -> bool:
        return self._portal.run(self.queue.delete())

    def clear(self, *, scheduled_only: bool = False, keep_leased: bool = False) -> int:
        return self._portal.run(
            self.queue.clear(scheduled_only=scheduled_only, keep_leased=keep_leased)
        )

    def pause(self) -> None:
        self._portal.run(self.queue.pause())

    def resume(self) -> None:
        self._portal.run(self.queue.resume())

    def partitions(self, *, limit: int = 100, after: str | None = None) -> Page[PartitionStats]:
        return self._portal.run(self.queue.partitions(limit=limit, after=after))

    def groups(self, *, limit: int = 100, after: str | None = None) -> Page[Group]:
        return self._portal.run(self.queue.groups(limit=limit, after=after))

    def subscribe(self, group: str, start: StartFrom | Moment = StartFrom.ALL) -> None:
        self._portal.run(self.queue.subscribe(group, start))

    def seek(
        self,
        group: str = DEFAULT_GROUP,
        *,
        to: SeekTo | str | None = None,
        time: Moment | None = None,
        seq: int | None = None,
    ) -> int:
        return self._portal.run(self.queue.seek(group, to=to, time=time, seq=seq))

    def delete_group(self, group: str) -> bool:
        return self._portal.run(self.queue.delete_group(group))

    def dead_letters(self, **options: Any) -> DeadLetterPage:
        return self._portal.run(self.queue.dead_letters(**options))

    def redrive(self, **options: Any) -> int:
        return self._portal.run(self.queue.redrive(**options))

    def purge(self, **options: Any) -> int:
        return self._portal.run(self.queue.purge(**options))

    def __repr__(self) -> str:
        return repr(self.queue)


class SyncBuffer(Generic[T]):
    """`PushBuffer` for `with`."""

    def __init__(self, buffer: PushBuffer[T], portal: Portal) -> None:
        self._buffer = buffer
        self._portal = portal

    @property
    def sent(self) -> int:
        return self._buffer.sent

    def __enter__(self) -> SyncBuffer[T]:
        self._portal.run(self._buffer.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._portal.run(self._buffer.__aexit__())

    def add(self, payload: T, **options: Any) -> str:
        return self._portal.run(self._buffer.add(payload, **options))

    def flush(self) -> None:
        self._portal.run(self._buffer.flush())


class SyncConsumer(Generic[T]):
    """`Consumer` for `with`: runs inside the block."""

    def __init__(self, consumer: Consumer[T], portal: Portal) -> None:
        self._consumer = consumer
        self._portal = portal

    @property
    def handled(self) -> int:
        return self._consumer.handled

    @property
    def failed(self) -> int:
        return self._consumer.failed

    def __enter__(self) -> SyncConsumer[T]:
        self._portal.run(self._consumer.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._portal.run(self._consumer.stop())

    def wait(self) -> None:
        """Until it ends by itself, which it does only with an error."""
        self._portal.run(self._consumer.wait())
