"""What a job is: an item of a work queue whose payload says what to run.

A command, `{"command": "sleep 2", …}`, on a queue that is marked as one that runs commands; or a
task, `{"task": "module:function", …}`, on any other work queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from monarq.errors import InvalidRequestError
from monarq.model import Item, ItemState

DEFAULT_QUEUE = "jobs"
DEFAULT_TASK_QUEUE = "tasks"

LONGEST_TIMEOUT_SECONDS = 30 * 86_400
Timeout = Annotated[float, Meta(gt=0, le=LONGEST_TIMEOUT_SECONDS)]


class CommandJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`command` is run by `/bin/sh`, in `cwd`, with `env` added to a clean environment."""

    command: Annotated[str, Meta(min_length=1, max_length=100_000)]
    env: dict[str, str] = {}
    cwd: str | None = None
    timeout: Timeout | None = None


class TaskJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`task` is the name that a function was registered by."""

    task: Annotated[str, Meta(min_length=1, max_length=255)]
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    timeout: Timeout | None = None


_encode = msgspec.json.Encoder().encode


def task_payloads(
    task: str, calls: Iterable[Sequence[Any]], timeout: float | None = None
) -> list[bytes]:
    """The payloads of jobs that differ in their arguments only, each as `TaskJob` is written."""
    without = _encode(TaskJob(task=task, timeout=timeout))
    start, _, end = _encode(TaskJob(task=task, args=[0], timeout=timeout)).rpartition(b"[0]")
    return [start + _encode(args) + end if args else without for args in map(tuple, calls)]


class JobState(StrEnum):
    """As people speak of jobs; `failed` is one that failed and will be tried again."""

    PENDING = "pending"
    SCHEDULED = "scheduled"
    PROCESSING = "processing"
    FAILED = "failed"
    COMPLETED = "completed"
    DEAD = "dead"
    CANCELLED = "cancelled"


_STATES = {
    ItemState.READY: JobState.PENDING,
    ItemState.LEASED: JobState.PROCESSING,
    ItemState.DONE: JobState.COMPLETED,
    ItemState.DEAD: JobState.DEAD,
    ItemState.CANCELLED: JobState.CANCELLED,
}

#: The item states that a job state is found under.
ITEM_STATE = {job: item for item, job in _STATES.items()} | {
    JobState.SCHEDULED: ItemState.SCHEDULED,
    JobState.FAILED: ItemState.SCHEDULED,
}


def job_state(item: Item) -> JobState:
    if item.state is ItemState.SCHEDULED:
        return JobState.FAILED if item.attempts else JobState.SCHEDULED
    return _STATES[item.state]


def read_job(payload: bytes) -> CommandJob | TaskJob:
    """The job in a payload; `InvalidRequestError` says what is wrong with it."""
    try:
        names = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        raise InvalidRequestError("a job is an object with `command` or `task`") from None
    if ("command" in names) == ("task" in names):
        raise InvalidRequestError("a job has either a `command` or a `task`")
    kind: type[CommandJob | TaskJob] = CommandJob if "command" in names else TaskJob
    try:
        return msgspec.json.decode(payload, type=kind)
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"not a job: {error}") from None


_task_decoder = msgspec.json.Decoder(TaskJob)


def read_task_job(payload: bytes) -> CommandJob | TaskJob:
    """The same, where a task is expected."""
    try:
        return _task_decoder.decode(payload)
    except msgspec.DecodeError:
        return read_job(payload)


class AttemptResult(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What is kept of an attempt: of a command its exit code and what it printed, of a task the
    value it returned."""

    seconds: float
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    value: Any = None
    traceback: str | None = None


def read_result(result: bytes | None) -> AttemptResult | None:
    """None if there is none, or it is somebody else's."""
    if result is None:
        return None
    try:
        return msgspec.json.decode(result, type=AttemptResult)
    except msgspec.DecodeError:
        return None
