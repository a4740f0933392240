"""Tasks and jobs of a synchronous client."""

from __future__ import annotations

from typing import Any, Generic, ParamSpec, TypeVar

from monarq.client.handles import AsyncJob
from monarq.client.portal import Portal
from monarq.client.task_client import AsyncTask
from monarq.client.tasks import Task
from monarq.job import AttemptResult, JobState
from monarq.model import Attempt, ItemDetail

P = ParamSpec("P")
R = TypeVar("R")


class SyncJob:
    """`AsyncJob` without `await`."""

    def __init__(self, job: AsyncJob, portal: Portal) -> None:
        self._job = job
        self._portal = portal

    @property
    def id(self) -> str:
        return self._job.id

    @property
    def is_new(self) -> bool:
        return self._job.is_new

    def item(self) -> ItemDetail:
        return self._portal.run(self._job.item())

    def state(self) -> JobState:
        return self._portal.run(self._job.state())

    def attempts(self) -> list[Attempt]:
        return self._portal.run(self._job.attempts())

    def outcome(self, timeout: float | None = None) -> AttemptResult:
        return self._portal.run(self._job.outcome(timeout))

    def result(self, timeout: float | None = None) -> Any:
        return self._portal.run(self._job.result(timeout))

    def cancel(self) -> None:
        self._portal.run(self._job.cancel())

    def retry(self) -> None:
        self._portal.run(self._job.retry())

    def __repr__(self) -> str:
        return repr(self._job)


class SyncTask(Task[P, R], Generic[P, R]):
    """Made by `Client.task`."""

    def __init__(self, task: AsyncTask[P, R], portal: Portal) -> None:
        super().__init__(task.function, task.name, task.options, task.clock)
        self._task = task
        self._portal = portal

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> SyncJob:
        """Store it, to be run by a worker."""
        task = self._task.with_options(**self._options())
        return SyncJob(self._portal.run(task.enqueue(*args, **kwargs)), self._portal)

    def enqueue_many(self, calls: list[tuple[Any, ...]]) -> list[SyncJob]:
        """One job for the positional arguments of each call, all of them or none."""
        task = self._task.with_options(**self._options())
        jobs = self._portal.run(task.enqueue_many(calls))
        return [SyncJob(job, self._portal) for job in jobs]

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self.options, name) for name in self.options.__struct_fields__}
