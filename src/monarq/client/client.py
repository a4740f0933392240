"""The synchronous client: the asynchronous one, run by a thread of its own.

Every call is handed to that thread's loop and waited for, so that there is one implementation;
`AsyncClient` and what belongs to it say what the calls do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, ParamSpec, TypeVar, overload

from monarq.client.async_client import AsyncClient
from monarq.client.portal import Portal
from monarq.client.sync_queue import SyncQueue
from monarq.client.sync_received import SyncBatch
from monarq.client.sync_tasks import SyncJob, SyncTask
from monarq.client.sync_transactions import SyncTransaction
from monarq.client.task_client import register_cron
from monarq.client.tasks import Task, Tasks
from monarq.clock import Clock
from monarq.errors import MonarqError
from monarq.model import Ack, Acked, Push, Pushed
from monarq.operations.calls import SyncCalls
from monarq.operations.operation import Operation

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class SyncAdmin(SyncCalls):
    """`Admin` without `await`: the same names, the same arguments."""

    def __init__(self, client: AsyncClient, portal: Portal) -> None:
        self._client = client
        self._portal = portal

    def call(self, request: Operation[R]) -> R:
        return self._portal.run(self._client.admin.call(request))

    def restore(self, push: Push) -> list[Pushed]:
        return self._portal.run(self._client.admin.restore(push))


class Client:
    """A connection to a broker: `with Client("http://localhost:6632") as mq:`. May be shared by
    threads. Takes the addresses and options of `AsyncClient`."""

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
        self.address = address
        """Where the broker or the store is, as it was given."""
        self._client = AsyncClient(
            address,
            token=token,
            name=name,
            keys=keys,
            schema=schema,
            clock=clock,
            timeout=timeout,
        )
        self._tasks = Tasks()
        self._portal = Portal()
        try:
            self._portal.run(self._client.connect())
        except BaseException:
            self._portal.close()
            raise

    @property
    def name(self) -> str:
        return self._client.name

    @property
    def options(self) -> dict[str, Any]:
        """As of `AsyncClient`."""
        return self._client.options

    def close(self) -> None:
        """Finish what is under way and let go of everything. Twice is harmless."""
        try:
            if self._portal.is_open:
                self._portal.run(self._client.close())
        finally:
            self._portal.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @overload
    def queue(self, name: str) -> SyncQueue[Any]: ...

    @overload
    def queue(self, name: str, payload: type[T]) -> SyncQueue[T]: ...

    def queue(self, name: str, payload: Any = Any) -> SyncQueue[Any]:
        """A handle on a queue; `payload` is the type that its payloads must have."""
        return SyncQueue(self._client.queue(name, payload), self._portal)

    @property
    def tasks(self) -> Tasks:
        """What was registered by `task` and `cron`, for a worker to run."""
        return self._tasks

    def task(self, function: Callable[P, R] | None = None, **options: Any) -> Any:
        """As `AsyncClient.task`; what is registered is enqueued without `await`."""

        def decorate(function: Callable[P, R]) -> Any:
            task: SyncTask[P, R] = SyncTask(self._client.task(**options)(function), self._portal)
            self._tasks.add(task)
            return task

        return decorate if function is None else decorate(function)

    def cron(
        self, expression: str, *, name: str | None = None, zone: str = "UTC", **options: Any
    ) -> Callable[[Callable[..., Any]], Any]:
        """As `AsyncClient.cron`."""

        def decorate(function: Callable[..., Any]) -> Any:
            task: Any = function
            if not isinstance(function, Task):
                task = self.task(name=name, **options)(function)
            register_cron(self._tasks, task, expression, name, zone)
            return task

        return decorate

    def job(self, job_id: str) -> SyncJob:
        """A job that was enqueued, by its id."""
        return SyncJob(self._client.job(job_id), self._portal)

    def push(self, push: Push, *, connection: Any = None) -> list[Pushed]:
        """Items of any queues, all of them or none; `connection` as of `SyncQueue.push`."""
        return self._portal.run(self._client.push(push, connection=connection))

    def pop(self, batch: int = 1, **options: Any) -> SyncBatch[Any]:
        """Of whichever ordered queues have this `namespace`, this `task` or both; options are
        those of `AsyncClient.pop`."""
        return SyncBatch(self._portal.run(self._client.pop(batch, **options)), self._portal)

    def ack(self, acks: Sequence[Ack]) -> list[Acked | MonarqError]:
        """As `AsyncClient.ack`: one answer an ack, or its error."""
        return self._portal.run(self._client.ack(acks))

    def renew(self, lease_id: str, seconds: float) -> datetime:
        """Have a lease last that long from now; until when it does."""
        return self._portal.run(self._client.renew(lease_id, seconds))

    def transaction(self) -> SyncTransaction:
        """`with mq.transaction() as tx: tx.ack(message); tx.push(queue, payload)`."""
        return SyncTransaction(self._client.transaction(), self._portal)

    @property
    def admin(self) -> SyncAdmin:
        """Everything else, by the names of the store's contract."""
        return SyncAdmin(self._client, self._portal)
