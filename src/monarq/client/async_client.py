"""The asynchronous client."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, ParamSpec, TypeVar, overload

from monarq.client.connecting import open_link
from monarq.client.handles import AsyncJob
from monarq.client.link import Admin, Link
from monarq.client.payloads import PayloadType
from monarq.client.popping import pop_from, with_terms
from monarq.client.queue import AsyncQueue
from monarq.client.received import Batch
from monarq.client.task_client import AsyncTask, register, register_cron
from monarq.client.task_options import TaskOptions
from monarq.client.tasks import Task, Tasks
from monarq.client.times import Duration, Moment, to_datetime
from monarq.client.transactions import AsyncTransaction
from monarq.client.work_queues import WorkQueues
from monarq.clock import Clock
from monarq.errors import InvalidRequestError, MonarqError
from monarq.job import DEFAULT_TASK_QUEUE
from monarq.model import (
    DEFAULT_GROUP,
    Ack,
    Acked,
    Pop,
    Push,
    Pushed,
    Renew,
    StartFrom,
)
from monarq.store.validation import check_json, check_name, check_push, check_seconds

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class AsyncClient:
    """A connection to a broker: `async with AsyncClient("http://localhost:6632") as mq:`.

    `address` is the URL of a broker, several of them (any of which can serve), or the address of
    a store (`sqlite:///file`, `postgresql://…`, `memory:`): then the broker runs in this process.
    """

    def __init__(
        self,
        address: str | Sequence[str] = "http://127.0.0.1:6632",
        *,
        token: str | None = None,
        name: str | None = None,
        keys: Sequence[bytes] = (),
        schema: str = "monarq",
        clock: Clock | None = None,
        timeout: float = 30.0,
    ) -> None:
        """`token` is a JWT or API key; `name` is what this consumer is called in the delivery
        log; `keys` and `schema` are for stores."""
        if name is not None:
            check_name(name, "name")
        check_seconds(timeout, "timeout", low=0.001, high=1e9)
        self.address = address
        """Where the broker or the store is, as it was given."""
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self.options: dict[str, Any] = {
            "token": token,
            "keys": keys,
            "schema": schema,
            "clock": clock,
            "timeout": timeout,
        }
        """With what it is reached, as that was given: for another client of the same."""
        self.link: Link = open_link(address, **self.options)
        self._clock = clock
        self.work_queues = WorkQueues(self.link)
        self.tasks = Tasks()
        """What was registered by `task` and `cron`, for a worker to run."""
        self.looped_over: set[Batch[Any]] = set()
        """What loops over queues have popped and not answered yet."""

    async def connect(self) -> AsyncClient:
        await self.link.open()
        return self

    async def close(self) -> None:
        # A loop that was left is ended by the garbage collector, which may come too late for that.
        while self.looped_over:
            with contextlib.suppress(MonarqError):
                await self.looped_over.pop().release()
        await self.link.close()

    async def __aenter__(self) -> AsyncClient:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @overload
    def queue(self, name: str) -> AsyncQueue[Any]: ...

    @overload
    def queue(self, name: str, payload: type[T]) -> AsyncQueue[T]: ...

    def queue(self, name: str, payload: Any = Any) -> AsyncQueue[Any]:
        """A handle on a queue; `payload` is the type that its payloads must have."""
        return AsyncQueue(self, name, PayloadType(payload))

    # --- the four verbs, across queues -----------------------------------------------------

    async def push(self, push: Push, *, connection: Any = None) -> list[Pushed]:
        """Items of any queues, all of them or none. With `connection`, your own connection to the
        same PostgreSQL, they are stored in the transaction that is open on it."""
        check_push(push)
        for item in push.items:
            check_json(item.payload, "payload")
            if item.attempts is not None:
                raise InvalidRequestError("attempts are set by an import only")
        return await self.push_encoded(push, connection)

    async def push_encoded(self, push: Push, connection: Any = None) -> list[Pushed]:
        """As `push`, of payloads that are known to be JSON."""
        if connection is not None:
            return await self.link.own_transactions.push(connection, push)
        return await self.link.push(push)

    async def pop(
        self,
        batch: int = 1,
        *,
        namespace: str | None = None,
        task: str | None = None,
        group: str = DEFAULT_GROUP,
        wait: float = 0.0,
        lease: Duration | None = None,
        partitions: int = 1,
        start: StartFrom | Moment = StartFrom.ALL,
        auto_ack: bool = False,
    ) -> Batch[Any]:
        """As `AsyncQueue.pop`, of whichever ordered queues have this namespace, this task or
        both."""
        pop = Pop(
            namespace=namespace,
            task=task,
            group=group,
            batch=batch,
            partitions=partitions,
            auto_ack=auto_ack,
            consumer=self.name,
        )
        asked = with_terms(pop, lease=lease, start=start)
        return await pop_from(self.link, asked, PayloadType(Any), wait=wait)

    async def ack(self, acks: Sequence[Ack]) -> list[Acked | MonarqError]:
        """Answers to what was popped before, perhaps by somebody else: `message.to_ack()`, or
        an `Ack` of a whole lease. Each stands alone, with its error in its place."""
        return await self.link.ack(acks)

    async def renew(self, lease_id: str, seconds: float) -> datetime:
        """Have a lease last that long from now; until when it does."""
        renewed = await self.link.renew(Renew(lease_id, seconds))
        return to_datetime(renewed.expires_at)

    # --- tasks and jobs --------------------------------------------------------------------

    def task(
        self,
        function: Callable[P, R] | None = None,
        *,
        name: str | None = None,
        queue: str = DEFAULT_TASK_QUEUE,
        retries: int | None = None,
        backoff: float | None = None,
        timeout: float | None = None,
        priority: int | None = None,
        unique_for: float | None = None,
    ) -> Any:
        """Register a function as a task: `@mq.task`, or `@mq.task(queue="mail", retries=5)`. It
        is known to workers by `name`, or by its module and name."""
        options = TaskOptions(
            queue=queue,
            retries=retries,
            backoff=backoff,
            timeout=timeout,
            priority=priority,
            unique_for=unique_for,
        )

        def decorate(function: Callable[P, R]) -> Any:
            return register(self.tasks, self._make_task, function, name, options)

        return decorate if function is None else decorate(function)

    def cron(
        self, expression: str, *, name: str | None = None, zone: str = "UTC", **options: Any
    ) -> Callable[[Callable[..., Any]], Any]:
        """Register a function without arguments to be run at certain times, each once however
        many workers there are: `@mq.cron("*/5 * * * *")`."""

        def decorate(function: Callable[..., Any]) -> Any:
            task: Any = function
            if not isinstance(function, Task):
                task = self.task(name=name, **options)(function)
            register_cron(self.tasks, task, expression, name, zone)
            return task

        return decorate

    def _make_task(
        self, function: Callable[..., Any], name: str, options: TaskOptions
    ) -> AsyncTask[Any, Any]:
        return AsyncTask(function, name, options, self.link, self.work_queues, self._clock)

    def job(self, job_id: str) -> AsyncJob:
        """A job that was enqueued, by its id."""
        return AsyncJob(self.link, job_id, is_new=False)

    # --- the rest --------------------------------------------------------------------------

    def transaction(self) -> AsyncTransaction:
        """`async with mq.transaction() as tx: tx.ack(message); tx.push(queue, payload)`."""
        return AsyncTransaction(self.link)

    @property
    def admin(self) -> Admin:
        """Everything else, by the names of the store's contract."""
        return self.link.admin
