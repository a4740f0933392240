"""A queue, as a client holds it: a name, perhaps a partition, and the type of its payloads."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from monarq.client.buffering import PushBuffer
from monarq.client.consuming import Consumer, Handler
from monarq.client.option_kinds import check_kind, needs_kind, one_of
from monarq.client.payloads import PayloadType, as_json
from monarq.client.popping import pop_from, with_terms
from monarq.client.received import Batch, Received
from monarq.client.times import Duration, Moment, to_micros, to_seconds, to_start
from monarq.errors import InvalidRequestError, MonarqError, NotFoundError
from monarq.model import (
    DEFAULT_GROUP,
    DEFAULT_PARTITION,
    ConfiguredQueue,
    Group,
    Page,
    PartitionStats,
    Pop,
    Push,
    Pushed,
    PushItem,
    QueueCounts,
    QueueInfo,
    QueueKind,
    QueueOptions,
    SeekTo,
    StartFrom,
)
from monarq.operations.dead_letters import DeadLetterPage
from monarq.store.validation import check_name

if TYPE_CHECKING:
    from monarq.client.async_client import AsyncClient

T = TypeVar("T")

#: How long one long poll takes at most; a consumer polls again and again.
LONGEST_WAIT_SECONDS = 30.0


class AsyncQueue(Generic[T]):
    """Made by `AsyncClient.queue`; costs nothing, asks nothing of the broker by itself."""

    def __init__(
        self,
        client: AsyncClient,
        name: str,
        kind: PayloadType[T],
        partition: str | None = None,
    ) -> None:
        check_name(name, "queue")
        if partition is not None:
            check_name(partition, "partition")
        self._client = client
        self._kind = kind
        self.name = name
        self.partition_name = partition

    def partition(self, name: str) -> AsyncQueue[T]:
        """The same queue; pushes go to, and pops come from, this partition."""
        return AsyncQueue(self._client, self.name, self._kind, name)

    # --- push ------------------------------------------------------------------------------

    async def push(
        self,
        payload: T,
        *,
        transaction_id: str | None = None,
        trace_id: str | None = None,
        headers: dict[str, Any] | None = None,
        priority: int | None = None,
        run_at: Moment | None = None,
        delay: Duration | None = None,
        max_attempts: int | None = None,
        connection: Any = None,
    ) -> Pushed:
        """Store one message or item; durable when this returns. With `connection`, your own
        connection (asyncpg, psycopg, SQLAlchemy) to the same PostgreSQL, it is stored in the
        transaction that is open on it: with your data, or not at all."""
        item = self.item(
            payload,
            transaction_id=transaction_id,
            trace_id=trace_id,
            headers=headers,
            priority=priority,
            run_at=run_at,
            delay=delay,
            max_attempts=max_attempts,
        )
        [pushed] = await self._client.push_encoded(Push([item]), connection)
        return pushed

    async def push_many(self, payloads: Iterable[T], *, connection: Any = None) -> list[Pushed]:
        """All of them, or none."""
        if not isinstance(payloads, Iterable):
            raise InvalidRequestError("payloads must be a list")
        items = [self.item(payload) for payload in payloads]
        return await self._client.push_encoded(Push(items), connection) if items else []

    def buffer(self, *, max_count: int = 1000, max_seconds: float = 0.1) -> PushBuffer[T]:
        """Gathers pushes and sends them together, for `async with`."""
        return PushBuffer(self, self._client.link, max_count=max_count, max_seconds=max_seconds)

    def item(
        self,
        payload: T,
        *,
        transaction_id: str | None = None,
        trace_id: str | None = None,
        headers: dict[str, Any] | None = None,
        priority: int | None = None,
        run_at: Moment | None = None,
        delay: Duration | None = None,
        max_attempts: int | None = None,
    ) -> PushItem:
        """What a push would store, for transactions."""
        return PushItem(
            queue=self.name,
            payload=self._kind.encode(payload),
            partition=self.partition_name or DEFAULT_PARTITION,
            transaction_id=transaction_id,
            trace_id=trace_id,
            headers=None if headers is None else as_json(headers, "the headers"),
            priority=priority,
            run_at=to_micros(run_at),
            delay_seconds=to_seconds(delay),
            max_attempts=max_attempts,
        )

    # --- pop -------------------------------------------------------------------------------

    async def pop(
        self,
        batch: int = 1,
        *,
        group: str = DEFAULT_GROUP,
        wait: float = 0.0,
        lease: Duration | None = None,
        partitions: int = 1,
        start: StartFrom | Moment = StartFrom.ALL,
        auto_ack: bool = False,
    ) -> Batch[T]:
        """Up to `batch` messages (of up to `partitions` partitions) or items, under a lease. An
        empty batch if there is nothing, after `wait` seconds. `start` says where a new group
        begins."""
        pop = self._pop_request(batch, group, lease, partitions, start, auto_ack)
        return await pop_from(self._client.link, pop, self._kind, wait=wait)

    def _pop_request(
        self,
        batch: int,
        group: str,
        lease: Duration | None,
        partitions: int,
        start: StartFrom | Moment,
        auto_ack: bool = False,
    ) -> Pop:
        pop = Pop(
            queue=self.name,
            partition=self.partition_name,
            group=group,
            batch=batch,
            partitions=partitions,
            auto_ack=auto_ack,
            consumer=self._client.name,
        )
        return with_terms(pop, lease=lease, start=start)

    async def messages(
        self,
        *,
        group: str = DEFAULT_GROUP,
        batch: int = 1,
        lease: Duration | None = None,
        start: StartFrom | Moment = StartFrom.ALL,
    ) -> AsyncGenerator[Received[T], None]:
        """Messages as they come, for ever. One that has no answer when the next is asked for is
        done; when the loop is left, what has none is given back."""
        pop = self._pop_request(batch, group, lease, 1, start)
        popped: Batch[T] | None = None
        while True:
            if not popped:
                link, wait = self._client.link, LONGEST_WAIT_SECONDS
                popped = await pop_from(link, pop, self._kind, wait=wait)
            following: Batch[T] | None = None
            looped_over = self._client.looped_over
            looped_over.add(popped)
            try:
                for message in popped:
                    yield message
                    if popped.is_last_unanswered(message):
                        failure, following = await popped.ack_and_pop(pop)
                        if failure is not None:
                            await following.release()
                            raise failure
                    elif not message.answered:
                        await message.ack()
            finally:
                if popped in looped_over:  # the client has not been closed
                    looped_over.remove(popped)
                    await popped.release()
            popped = following

    def __aiter__(self) -> AsyncIterator[Received[T]]:
        return self.messages()

    def consumer(
        self,
        handler: Handler,
        *,
        group: str = DEFAULT_GROUP,
        batch: int = 1,
        concurrency: int = 1,
        each: bool = True,
        lease: Duration | None = None,
        partitions: int = 1,
        start: StartFrom | Moment = StartFrom.ALL,
        on_error: Callable[[BaseException], None] | None = None,
    ) -> Consumer[T]:
        """Calls `handler` with every message (or with each batch, if not `each`), in up to
        `concurrency` at a time. What it returns from is acked, what it raises from has failed.
        A plain function runs in a thread. See `Consumer` for starting and stopping it."""

        async def pop(wait: float) -> Batch[T]:
            asked = self._pop_request(batch, group, lease, partitions, start)
            return await pop_from(self._client.link, asked, self._kind, wait=wait)

        async def ack_and_pop(done: Batch[T]) -> tuple[MonarqError | None, Batch[T]]:
            return await done.ack_and_pop(self._pop_request(batch, group, lease, partitions, start))

        return Consumer(
            pop,
            ack_and_pop,
            handler,
            concurrency=concurrency,
            each=each,
            lease_seconds=self._lease_seconds(lease),
            ordered=self._is_ordered,
            on_error=on_error,
        )

    async def consume(self, handler: Handler, **options: Any) -> None:
        """`consumer(…)`, run until it is cancelled."""
        await self.consumer(handler, **options).run()

    def _lease_seconds(self, lease: Duration | None) -> Callable[[], Awaitable[float]]:
        async def find() -> float:
            given = to_seconds(lease)
            if given is not None:
                return given
            try:
                return (await self.info()).options.lease_time
            except NotFoundError:
                return QueueOptions().lease_time

        return find

    async def _is_ordered(self) -> bool:
        try:
            return (await self.info()).kind is QueueKind.ORDERED
        except NotFoundError:
            return True

    # --- the queue itself ------------------------------------------------------------------

    async def configure(
        self,
        *,
        kind: QueueKind | str | None = None,
        namespace: str | None = None,
        task: str | None = None,
        **options: Any,
    ) -> ConfiguredQueue:
        """Make it, or change the options that are named (`lease_time=60, retry_limit=5`)."""
        chosen = None if kind is None else one_of(QueueKind, kind, "kind")
        if needs_kind(options):
            check_kind(self.name, chosen or await self._kind_of_queue(), options)
        return await self._client.admin.configure(
            self.name,
            kind=chosen,
            namespace=namespace,
            task=task,
            options=options,
        )

    async def _kind_of_queue(self) -> QueueKind:
        """Also of one that does not exist: it would be ordered."""
        try:
            return (await self.info()).kind
        except NotFoundError:
            return QueueKind.ORDERED

    async def info(self) -> QueueInfo:
        """Return the queue with its counters and options; raise `NotFoundError`."""
        return await self._client.admin.get_queue(self.name)

    async def stats(self) -> QueueCounts:
        """Return the counters of `info`."""
        return (await self.info()).counts

    async def delete(self) -> bool:
        """Delete the queue with all that belongs to it; return whether there was one."""
        return (await self._client.admin.delete_queue(self.name)).deleted

    async def clear(self, *, scheduled_only: bool = False, keep_leased: bool = False) -> int:
        """Remove what is stored. Of a work queue only the scheduled items, or only the items
        that are not leased, if asked to."""
        return await self._client.admin.clear_queue(
            self.name, scheduled_only=scheduled_only, keep_leased=keep_leased
        )

    async def pause(self) -> None:
        """Let pops find nothing; pushes and acks are still taken."""
        await self._client.admin.pause_queue(self.name)

    async def resume(self) -> None:
        """Let pops find messages again."""
        await self._client.admin.resume_queue(self.name)

    async def partitions(
        self, *, limit: int = 100, after: str | None = None
    ) -> Page[PartitionStats]:
        """With what is kept of each, by partition id."""
        return await self._client.admin.list_partitions(self.name, limit=limit, after=after)

    # --- groups ----------------------------------------------------------------------------

    async def groups(self, *, limit: int = 100, after: str | None = None) -> Page[Group]:
        return await self._client.admin.list_groups(queue=self.name, limit=limit, after=after)

    async def subscribe(self, group: str, start: StartFrom | Moment = StartFrom.ALL) -> None:
        """Set where a group begins. A group that exists in the queue is moved there."""
        begins = to_start(start)
        if isinstance(begins, StartFrom):
            await self._client.admin.subscribe(group, start=begins, queue=self.name)
        else:
            await self._client.admin.subscribe(group, time=begins, queue=self.name)

    async def seek(
        self,
        group: str = DEFAULT_GROUP,
        *,
        to: SeekTo | str | None = None,
        time: Moment | None = None,
        seq: int | None = None,
    ) -> int:
        """Move a group to the `start`, the `end`, a time or a seq; here, or in this handle's
        partition. Replay is a seek back. Answers how many messages are before it now."""
        return await self._client.admin.seek(
            group,
            self.name,
            partition=self.partition_name,
            to=None if to is None else one_of(SeekTo, to, "to"),
            time=to_micros(time),
            seq=seq,
        )

    async def delete_group(self, group: str) -> bool:
        return bool(await self._client.admin.delete_group(group, queue=self.name))

    # --- dead letters ----------------------------------------------------------------------

    async def dead_letters(
        self, *, group: str | None = None, limit: int = 100, after: str | None = None
    ) -> DeadLetterPage:
        """Dead letters, newest first, and in `total` how many there are."""
        return await self._client.admin.list_dead_letters(
            queue=self.name,
            partition=self.partition_name,
            group=group,
            limit=limit,
            after=after,
        )

    async def redrive(
        self, *, group: str | None = None, ids: list[int] | None = None, to: str | None = None
    ) -> int:
        """Put dead letters back, here or into the queue `to`; how many."""
        return await self._client.admin.redrive(
            queue=self.name,
            partition=self.partition_name,
            group=group,
            ids=ids,
            to_queue=to,
        )

    async def purge(self, *, group: str | None = None, ids: list[int] | None = None) -> int:
        """Remove dead letters for good; return how many."""
        return await self._client.admin.purge_dead_letters(
            queue=self.name, partition=self.partition_name, group=group, ids=ids
        )

    def __repr__(self) -> str:
        partition = "" if self.partition_name is None else f"/{self.partition_name}"
        return f"<queue {self.name}{partition}>"
