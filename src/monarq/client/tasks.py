"""Tasks: Python functions that are run as jobs.

    mq = Client("sqlite:///app.db")

    @mq.task(queue="mail", retries=5, backoff=2, timeout=30)
    def send_mail(to: str) -> None: ...

    send_mail.enqueue("ada@example.org")
    send_mail.schedule(after=60).enqueue("ada@example.org")

`monarq worker start --app module:mq` runs them. Arguments are JSON, and are checked against the
function's signature when they are enqueued.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, ParamSpec, Self, TypeVar

import msgspec
from msgspec import structs

from monarq.client.payloads import has_no_number
from monarq.client.schedules import Schedule
from monarq.client.task_options import TaskOptions
from monarq.client.times import Duration, Moment, to_micros, to_seconds
from monarq.clock import SECOND, Clock, SystemClock
from monarq.errors import InvalidRequestError
from monarq.job import TaskJob, task_payloads
from monarq.model import DEFAULT_PARTITION, PushColumns, PushItem

P = ParamSpec("P")
R = TypeVar("R")


_encode = msgspec.json.Encoder().encode
_UNWRITABLE = (TypeError, ValueError, OverflowError, RecursionError)


class Task(Generic[P, R]):
    """A registered function. Calling it runs it here and now, as if it were none."""

    def __init__(
        self,
        function: Callable[P, R],
        name: str,
        options: TaskOptions,
        clock: Clock | None = None,
    ) -> None:
        self._function = function
        self.name = name
        self.options = options
        self.clock = clock or SystemClock()
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        self._signature = inspect.signature(function)
        self._fewest, self._most = _positional(self._signature)

    @property
    def function(self) -> Callable[P, R]:
        return self._function

    @property
    def timeout(self) -> float | None:
        return self.options.timeout

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def with_options(self, **options: Any) -> Self:
        """The same task, enqueued otherwise: `send_mail.with_options(priority=9).enqueue(…)`."""
        other = copy.copy(self)
        # Made anew, so that it is checked: older msgspec does not check what it replaces.
        other.options = TaskOptions(**structs.asdict(self.options) | options)
        return other

    def schedule(self, *, at: Moment | None = None, after: Duration | None = None) -> Self:
        """The same task, to be run at a time, or so long after it is enqueued."""
        if (at is None) == (after is None):
            raise InvalidRequestError("a task is scheduled `at` a time or `after` a while")
        return self.with_options(run_at=to_micros(at), delay_seconds=to_seconds(after))

    def to_item(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        transaction_id: str | None = None,
    ) -> PushItem:
        """What is pushed; `InvalidRequestError` if the function does not take these arguments, or
        JSON cannot hold them."""
        # Binding takes longer than all the rest, and mostly the number says enough.
        if kwargs or not self._takes(len(args)):
            self._bind(args, kwargs)
        options = self.options
        job = TaskJob(task=self.name, args=list(args), kwargs=dict(kwargs), timeout=options.timeout)
        try:
            payload = _encode(job)
        except _UNWRITABLE as error:
            raise self._no_json(error) from None
        self._check_numbers(payload, (args, kwargs))
        if options.unique_for is not None and transaction_id is None:
            # The same call, in whatever order its arguments are named.
            named = dict(sorted(kwargs.items()))
            same = payload if len(named) < 2 else _encode(structs.replace(job, kwargs=named))
            transaction_id = self._unique_id(same, options.unique_for)
        return PushItem(
            queue=options.queue,
            payload=payload,
            transaction_id=transaction_id,
            priority=options.priority,
            run_at=options.run_at,
            delay_seconds=options.delay_seconds,
            max_attempts=None if options.retries is None else options.retries + 1,
            backoff_base=options.backoff,
        )

    def to_items(self, calls: Sequence[tuple[Any, ...]]) -> Sequence[PushItem]:
        """The same for the positional arguments of each call."""
        options = self.options
        if options != TaskOptions(queue=options.queue, timeout=options.timeout):
            return [self.to_item(args, {}) for args in calls]
        if not all(map(self._takes, set(map(len, calls)))):
            for args in calls:
                self._bind(args, {})
        try:
            payloads = task_payloads(self.name, calls, options.timeout)
        except _UNWRITABLE as error:
            raise self._no_json(error) from None
        items = PushColumns(options.queue, DEFAULT_PARTITION, payloads)
        self._check_numbers(items.data, calls)
        return items

    def _takes(self, count: int) -> bool:
        """Whether so many arguments by position are as many as the function takes."""
        return self._fewest <= count <= self._most

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidRequestError(f"task {self.name}: {error}") from None

    def _check_numbers(self, encoded: bytes, arguments: object) -> None:
        if b"null" in encoded and has_no_number(msgspec.to_builtins(arguments)):
            raise self._no_json(ValueError("nan and infinity are no numbers there"))

    def _no_json(self, error: Exception) -> InvalidRequestError:
        return InvalidRequestError(f"task {self.name}: arguments must be JSON: {error}")

    def _unique_id(self, payload: bytes, seconds: float) -> str:
        span = int(self.clock.now() / SECOND // seconds)
        return f"unique:{hashlib.sha256(payload).hexdigest()[:32]}:{span}"

    def __repr__(self) -> str:
        return f"<task {self.name} on {self.options.queue}>"


class Tasks(Mapping[str, Task[Any, Any]]):
    """Tasks by name, and the schedules on which some of them run."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task[Any, Any]] = {}
        self.schedules: dict[str, Schedule] = {}

    def add(self, task: Task[Any, Any]) -> None:
        known = self._tasks.get(task.name)
        if known is not None and known.function is not task.function:
            raise InvalidRequestError(f"there are two tasks with the name {task.name!r}")
        self._tasks[task.name] = task

    def add_schedule(self, schedule: Schedule) -> None:
        if schedule.name in self.schedules:
            raise InvalidRequestError(f"there are two schedules with the name {schedule.name!r}")
        self.schedules[schedule.name] = schedule

    @property
    def queues(self) -> list[str]:
        """Where their jobs are, for a worker that is told nothing else."""
        return sorted({task.options.queue for task in self._tasks.values()})

    def __getitem__(self, name: str) -> Task[Any, Any]:
        return self._tasks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)


def _positional(signature: inspect.Signature) -> tuple[float, float]:
    """How many arguments it takes by position alone, at least and at most."""
    fewest = most = 0.0
    for parameter in signature.parameters.values():
        is_needed = parameter.default is parameter.empty
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            fewest += is_needed
            most += 1
        elif parameter.kind is parameter.VAR_POSITIONAL:
            most = math.inf
        elif parameter.kind is parameter.KEYWORD_ONLY and is_needed:
            return math.inf, 0
    return fewest, most


def check_calls(calls: object) -> None:
    """Check that these are lists of positional arguments."""
    if not isinstance(calls, list | tuple) or not all(
        isinstance(args, list | tuple) for args in calls
    ):
        raise InvalidRequestError("calls must be a list of tuples of arguments")


def task_name(function: Callable[..., Any]) -> str:
    """`module:function`. A script that is run is known by the name that a worker imports it by."""
    module = function.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        if spec is not None:
            module = spec.name
        elif file is not None:
            module = Path(file).stem
    return f"{module}:{function.__qualname__}"
