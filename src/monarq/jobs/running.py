"""Runs one job: a command in a process, or a task in this one. Knows nothing of leases."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from monarq.client.handlers import as_text, error_text, in_thread, raise_if_cancelled
from monarq.job import AttemptResult, CommandJob, TaskJob
from monarq.jobs.commands import Command, Lease, OnOutput, Stream, run_command
from monarq.jobs.confinement import Confinement
from monarq.jobs.output import BoundedOutput
from monarq.jobs.supervised import Supervisors

_TRACEBACK_FRAMES = 20


class Outcome(Struct, frozen=True, kw_only=True):
    """`error` is None if the job succeeded."""

    result: AttemptResult
    error: str | None = None
    stopped: bool = False
    """Ended because the worker stops: it does not count."""


class Runnable(Protocol):
    """A task, as a worker needs it."""

    @property
    def function(self) -> Callable[..., Any]: ...

    @property
    def timeout(self) -> float | None: ...


async def run_command_job(
    job: CommandJob,
    *,
    supervisors: Supervisors,
    lease: Lease,
    confinement: Confinement,
    stop: asyncio.Event,
    on_output: OnOutput | None = None,
    default_timeout: float | None = None,
) -> Outcome:
    printed = {Stream.STDOUT: BoundedOutput(), Stream.STDERR: BoundedOutput()}

    def take(stream: Stream, data: bytes) -> None:
        printed[stream].add(data)
        if on_output is not None:
            on_output(stream, data)

    timeout = default_timeout if job.timeout is None else job.timeout
    command = Command(job.command, job.env, job.cwd, timeout)
    ended = await run_command(
        command, take, supervisors=supervisors, lease=lease, confinement=confinement, stop=stop
    )
    error = ended.error
    if error is not None:
        last = printed[Stream.STDERR].text.strip().rpartition("\n")[2]
        why = confinement.explain(ended.exit_code or 0, ended.cpu_seconds, last)
        error = f"{error}: {last[:500]}" if last and not ended.timed_out else error
        error = error if why is None else f"{error} ({why})"
    return Outcome(
        result=AttemptResult(
            seconds=round(ended.seconds, 6),
            exit_code=ended.exit_code,
            stdout=printed[Stream.STDOUT].text,
            stderr=printed[Stream.STDERR].text,
            timed_out=ended.timed_out,
        ),
        error=error,
        stopped=ended.stopped,
    )


class TaskRun:
    """A task's job, to be `run` once. An `async def` runs on this loop, a plain function in a
    thread; such a thread cannot be ended, so its job is given up and the thread left to itself."""

    def __init__(
        self, job: TaskJob, tasks: Mapping[str, Runnable], *, threads: Executor | None = None
    ) -> None:
        self.name = job.task
        self._job = job
        self._tasks = tasks
        self._task = tasks.get(job.task)
        self._threads = threads
        self._runner: asyncio.Task[Any] | None = None
        self._is_stopped = False

    def is_run_by(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether this task of the loop runs it now."""
        return task is not None and self._runner is task

    @property
    def can_be_ended(self) -> bool:
        return self._task is not None and _is_async(self._task.function)

    def stop(self) -> None:
        """Its time is over now. An `async def` that does not end by that runs on."""
        if self._runner is not None and not self._is_stopped:
            self._is_stopped = True
            self._runner.cancel()

    async def run(self) -> Outcome:
        if self._task is None:
            known = ", ".join(sorted(self._tasks)) or "none"
            return Outcome(
                result=AttemptResult(seconds=0.0),
                error=f"this worker knows no task {self._job.task!r} (it knows {known})",
            )
        started = time.perf_counter()
        timeout = self._job.timeout if self._job.timeout is not None else self._task.timeout
        timer = None
        runner = self._runner = asyncio.current_task()
        try:
            try:
                # Most tasks have no time-out, and one that is not set takes its time, too.
                if timeout is None:
                    value = await _call(self._task.function, self._job, self._threads)
                else:
                    async with asyncio.timeout(timeout) as timer:
                        value = await _call(self._task.function, self._job, self._threads)
            finally:
                self._runner = None
                if self._is_stopped and runner is not None:
                    runner.uncancel()
            encoded = None if value is None else msgspec.to_builtins(value)
        # Whatever a task raises is its failure; a signal to the worker is raised nowhere.
        except BaseException as error:  # noqa: BLE001
            if isinstance(error, asyncio.CancelledError):
                raise_if_cancelled()
            seconds = time.perf_counter() - started
            if self._is_stopped:
                return _ended(seconds, "stopped with its worker", stopped=True)
            if isinstance(error, TimeoutError) and timer is not None and timer.expired():
                return _ended(seconds, f"timed out after {timeout:g} s", timed_out=True)
            return _failed(error, seconds)
        return Outcome(
            result=AttemptResult(seconds=round(time.perf_counter() - started, 6), value=encoded)
        )


async def _call(function: Callable[..., Any], job: TaskJob, threads: Executor | None) -> Any:
    if _is_async(function):
        return await function(*job.args, **job.kwargs)

    def call() -> Any:
        try:
            return function(*job.args, **job.kwargs)
        except GeneratorExit as error:
            return _Raised(error)

    value = await in_thread(threads, call)
    if isinstance(value, _Raised):
        raise value.error
    return value


class _Raised(NamedTuple):
    """What no future may carry: whoever awaits that is closed by it."""

    error: GeneratorExit


@lru_cache(maxsize=1024)
def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function)


def _ended(
    seconds: float, error: str, *, stopped: bool = False, timed_out: bool = False
) -> Outcome:
    result = AttemptResult(seconds=round(seconds, 6), timed_out=timed_out)
    return Outcome(result=result, error=error, stopped=stopped)


def _failed(error: BaseException, seconds: float) -> Outcome:
    said, trace = type(error).__name__, None
    # What it says of itself is other people's code, and may raise anything too.
    with contextlib.suppress(BaseException):
        said = error_text(error)
        trace = as_text("".join(traceback.format_exception(error, limit=-_TRACEBACK_FRAMES)))
    return Outcome(
        result=AttemptResult(seconds=round(seconds, 6), traceback=trace),
        error=said,
    )
