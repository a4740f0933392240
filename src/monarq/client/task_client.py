"""Tasks that know their client, and can so be enqueued."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from monarq.client.handles import AsyncJob
from monarq.client.link import Link
from monarq.client.schedules import Schedule
from monarq.client.task_options import TaskOptions
from monarq.client.tasks import Task, Tasks, check_calls, task_name
from monarq.client.work_queues import WorkQueues
from monarq.clock import Clock
from monarq.errors import InvalidRequestError
from monarq.model import Push, PushItem, PushStatus
from monarq.store.validation import check_name

P = ParamSpec("P")
R = TypeVar("R")
# Looked up once, not for each of a thousand jobs.
_DUPLICATE = PushStatus.DUPLICATE


class AsyncTask(Task[P, R], Generic[P, R]):
    """Made by `AsyncClient.task`."""

    def __init__(
        self,
        function: Callable[P, R],
        name: str,
        options: TaskOptions,
        link: Link,
        queues: WorkQueues,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(function, name, options, clock)
        self._link = link
        self._queues = queues

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> AsyncJob:
        """Store it, to be run by a worker."""
        [job] = await self._push([self.to_item(args, kwargs)])
        return job

    async def enqueue_many(self, calls: list[tuple[Any, ...]]) -> list[AsyncJob]:
        """One job for the positional arguments of each call, all of them or none."""
        check_calls(calls)
        return await self._push(self.to_items(calls)) if calls else []

    async def _push(self, items: Sequence[PushItem]) -> list[AsyncJob]:
        options = self.options
        if options.unique_for is None:
            await self._queues.ensure(options.queue)
        else:
            await self._queues.ensure_memory(options.queue, options.unique_for)
        link = self._link
        pushed = await link.push(Push(items))
        # The jobs of a task are alike: where one has its item's id for a transaction id, since it
        # was given none, all have, and none has to be written again.
        is_given = pushed[0].transaction_id != pushed[0].message_id
        return [
            AsyncJob(
                link,
                each.message_id if is_given else each.transaction_id,
                each.status is not _DUPLICATE,
            )
            for each in pushed
        ]


def register(
    tasks: Tasks,
    make: Callable[[Callable[..., Any], str, TaskOptions], Task[Any, Any]],
    function: Callable[..., Any],
    name: str | None,
    options: TaskOptions,
) -> Task[Any, Any]:
    if not callable(function):
        raise InvalidRequestError(f"a task must be a function, not {function!r}")
    name = task_name(function) if name is None else name
    check_name(name, "name")
    task = make(function, name, options)
    tasks.add(task)
    return task


def register_cron(
    tasks: Tasks, task: Task[Any, Any], expression: str, name: str | None, zone: str
) -> None:
    tasks.add_schedule(
        Schedule(
            name or task.name,
            expression,
            lambda transaction_id: task.to_item((), {}, transaction_id=transaction_id),
            zone=zone,
        )
    )
