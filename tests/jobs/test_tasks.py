"""Tasks: registered, enqueued, run by a worker, and asked about."""

import asyncio
import hashlib
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from monarq.client.async_client import AsyncClient
from monarq.client.client import Client
from monarq.client.handles import JobFailedError
from monarq.client.task_options import TaskOptions
from monarq.client.tasks import Task
from monarq.clock import SECOND, ManualClock
from monarq.errors import InvalidRequestError
from monarq.job import JobState
from monarq.jobs.worker import Worker
from monarq.model import QueueKind


@pytest.fixture
async def mq(tmp_path: Path) -> Any:
    async with AsyncClient(f"sqlite:///{tmp_path}/mq.db") as client:
        yield client


class Unspeakable(BaseException):
    def __str__(self) -> str:
        raise Unspeakable


async def run_all(mq: AsyncClient) -> None:
    await Worker(mq, mq.tasks.queues, tasks=mq.tasks, burst=True, concurrency=10).run()


async def test_a_task_is_enqueued_run_and_its_value_returned(mq: AsyncClient) -> None:
    @mq.task(queue="sums", retries=2, priority=7)
    async def add(a: int, b: int = 2) -> int:
        return a + b

    job = await add.enqueue(1, b=4)
    assert await job.state() is JobState.PENDING
    item = await job.item()
    assert (item.queue, item.max_attempts, item.priority) == ("sums", 3, 7)
    await run_all(mq)
    assert await job.result(timeout=5) == 5
    assert await job.state() is JobState.COMPLETED


async def test_waiting_for_a_result_returns_when_it_is_there(mq: AsyncClient) -> None:
    @mq.task
    def double(a: int) -> int:
        return 2 * a

    job = await double.enqueue(21)
    waiting = asyncio.ensure_future(job.result(timeout=20))
    await run_all(mq)
    assert await waiting == 42


async def test_a_result_that_takes_too_long_is_not_waited_for(mq: AsyncClient) -> None:
    @mq.task
    def nothing() -> None: ...

    job = await nothing.enqueue()
    with pytest.raises(TimeoutError):
        await job.result(timeout=0.05)


async def test_a_failed_task_raises_where_its_result_is_wanted(mq: AsyncClient) -> None:
    @mq.task(retries=0)
    def fail() -> None:
        raise ValueError("no")

    job = await fail.enqueue()
    await run_all(mq)
    with pytest.raises(JobFailedError, match="dead: ValueError: no"):
        await job.result()
    await job.retry()
    assert await job.state() is JobState.PENDING
    await job.cancel()
    with pytest.raises(JobFailedError, match="cancelled"):
        await job.result()


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (ValueError("y" * 200_000), "ValueError: yyy"),
        (ValueError("half \udcff, nul \0"), r"ValueError: half \?, nul \ufffd"),
        (StopIteration(), "RuntimeError: .*StopIteration"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit("x"), "GeneratorExit: x"),
        (Unspeakable(), "Unspeakable"),
        (asyncio.CancelledError(), "CancelledError"),
    ],
    ids=["long", "no text", "stop", "exit", "interrupt", "close", "unspeakable", "cancelled"],
)
async def test_whatever_a_task_raises_is_its_failure(
    mq: AsyncClient, raised: BaseException, said: str
) -> None:
    @mq.task(retries=0)
    def fail() -> None:
        raise raised

    @mq.task(retries=0)
    async def fail_here() -> None:
        raise raised

    jobs = [await fail.enqueue(), await fail_here.enqueue()]
    await run_all(mq)
    for job in jobs:
        with pytest.raises(JobFailedError, match=f"dead: {said}"):
            await job.result(timeout=10)


async def test_a_task_that_cancels_itself_fails(mq: AsyncClient) -> None:
    @mq.task(retries=0)
    async def fail() -> None:
        own = asyncio.current_task()
        assert own is not None
        own.cancel()
        await asyncio.sleep(0)

    job = await fail.enqueue()
    await run_all(mq)
    with pytest.raises(JobFailedError, match="dead: it cancelled itself"):
        await job.result(timeout=10)


@pytest.mark.parametrize("times", [1, 3])
async def test_a_job_that_its_worker_cannot_handle_fails_at_once(
    mq: AsyncClient, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    def break_down(*_: Any) -> None:
        raise OSError("no room")

    @mq.task(retries=0)
    def nothing() -> None: ...

    jobs = [await nothing.enqueue() for _ in range(times)]
    worker = Worker(mq, mq.tasks.queues, tasks=mq.tasks, burst=True)
    monkeypatch.setattr(worker.presence, "began", break_down)
    await worker.run()
    for job in jobs:
        with pytest.raises(JobFailedError, match="could not handle it: OSError: no room"):
            await job.result(timeout=10)
    assert worker.presence.failed == times


async def test_a_task_fails_if_something_that_it_waits_for_is_cancelled(mq: AsyncClient) -> None:
    @mq.task(retries=0)
    async def fail() -> None:
        own = asyncio.create_task(asyncio.sleep(60))
        own.cancel()
        await own

    jobs = [await fail.enqueue() for _ in range(3)]
    await run_all(mq)
    for job in jobs:
        with pytest.raises(JobFailedError, match="dead: CancelledError"):
            await job.result()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("x" * (17 << 20), "bytes, more than"),
        ("\udcff", "surrogates"),
        ({(1, 2): 3}, "keys"),
        ({1.5: 3, None: 1}, "keys"),
    ],
    ids=["long", "no text", "tuple as key", "null as key"],
)
async def test_a_result_that_cannot_be_kept_is_a_failure(
    mq: AsyncClient, value: Any, said: str
) -> None:
    @mq.task(retries=0)
    def give() -> Any:
        return value

    job = await give.enqueue()
    await run_all(mq)
    with pytest.raises(JobFailedError, match=f"dead: the result cannot be kept: .*{said}"):
        await job.result()


async def test_a_task_can_still_be_called(mq: AsyncClient) -> None:
    @mq.task
    def double(a: int) -> int:
        """Twice as much."""
        return 2 * a

    assert double(4) == 8
    assert double.__doc__ == "Twice as much."


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"c": 1}), ((object(),), {})]
)
async def test_arguments_are_checked_when_they_are_enqueued(
    mq: AsyncClient, args: Any, kwargs: Any
) -> None:
    @mq.task
    def take(a: Any, b: int = 0) -> None: ...

    with pytest.raises(InvalidRequestError, match="test_tasks"):
        await take.enqueue(*args, **kwargs)
    assert (await mq.admin.list_queues()).rows == []


@pytest.mark.parametrize("argument", [math.nan, [None, {"a": math.inf}], "\ud800"])
async def test_arguments_that_json_cannot_say_are_refused(
    mq: AsyncClient, argument: object
) -> None:
    @mq.task
    def take(a: object) -> None: ...

    for enqueueing in (
        take.enqueue(argument),
        take.enqueue(a=argument),
        take.enqueue_many([(None,), (argument,)]),
    ):
        with pytest.raises(InvalidRequestError, match="arguments must be JSON"):
            await enqueueing
    await take.enqueue(None)
    assert len((await mq.admin.list_items("tasks")).rows) == 1


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "x"])
@pytest.mark.parametrize("name", ["retries", "backoff", "timeout", "priority", "unique_for"])
async def test_options_are_checked_when_they_are_said(
    mq: AsyncClient, name: str, value: object
) -> None:
    if (name, value) == ("priority", -1):
        value = 10**9
    with pytest.raises(InvalidRequestError, match=name):
        mq.task(**{name: value})

    @mq.task
    def nothing() -> None: ...

    with pytest.raises(InvalidRequestError, match=name):
        nothing.with_options(**{name: value})


@pytest.mark.parametrize("name", ["timeout", "unique_for"])
async def test_no_time_at_all_is_refused(mq: AsyncClient, name: str) -> None:
    with pytest.raises(InvalidRequestError, match=name):
        mq.task(**{name: 0})


@pytest.mark.parametrize("value", [math.nan, math.inf, -1])
async def test_a_task_is_scheduled_at_a_time_that_comes(mq: AsyncClient, value: float) -> None:
    @mq.task
    def nothing() -> None: ...

    with pytest.raises(InvalidRequestError, match="after"):
        nothing.schedule(after=value)
    with pytest.raises(InvalidRequestError, match=r"at must|no time"):
        nothing.schedule(at=value)


async def test_only_calls_that_the_function_takes_are_enqueued(mq: AsyncClient) -> None:
    @mq.task
    def any_number(*args: int, times: int = 1) -> None: ...

    @mq.task
    def by_name(a: int, *, b: int) -> None: ...

    @mq.task
    def by_place(a: int, /, b: int = 0) -> None: ...

    assert len(await any_number.enqueue_many([(), (1,), (1, 2, 3)])) == 3
    assert len(await by_place.enqueue_many([(1,), (1, 2)])) == 2
    await by_name.enqueue(1, b=2)
    for task, args in ((by_name, (1,)), (by_name, (1, 2)), (by_place, ()), (by_place, (1, 2, 3))):
        with pytest.raises(InvalidRequestError, match="test_tasks"):
            await task.enqueue_many([args])
    with pytest.raises(InvalidRequestError, match="test_tasks"):
        await by_place.enqueue(a=1)  # type: ignore[call-arg]


async def test_a_task_is_scheduled(mq: AsyncClient) -> None:
    @mq.task
    def nothing() -> None: ...

    later = await nothing.schedule(after=timedelta(hours=1)).enqueue()
    then = datetime.now(UTC) + timedelta(days=1)
    tomorrow = await nothing.schedule(at=then).enqueue()
    assert await later.state() is JobState.SCHEDULED
    assert (await tomorrow.item()).run_at == round(then.timestamp() * 1_000_000)
    with pytest.raises(InvalidRequestError):
        nothing.schedule()


async def test_a_unique_task_is_stored_once_in_its_span_of_time(mq: AsyncClient) -> None:
    await mq.queue("tasks").configure(kind="work", completed_retention_seconds=0)

    @mq.task(unique_for=10 * 365 * 86_400)
    def nothing(a: int) -> None: ...

    first, again, other = [await nothing.enqueue(n) for n in (1, 1, 2)]
    assert (first.is_new, again.is_new, other.is_new) == (True, False, True)
    assert again.id == first.id


async def test_a_unique_call_is_the_same_in_whatever_order_its_arguments_are_named() -> None:
    def take(**named: int) -> None: ...

    task = Task(take, "take", TaskOptions(unique_for=60), ManualClock())
    first, again, other = [
        task.to_item((), named) for named in ({"b": 2, "a": 1}, {"a": 1, "b": 2}, {"b": 1, "a": 2})
    ]
    assert first.transaction_id == again.transaction_id != other.transaction_id
    assert list(msgspec.json.decode(first.payload)["kwargs"]) == ["b", "a"]


async def test_a_span_that_is_longer_than_the_queue_remembers_is_refused(mq: AsyncClient) -> None:
    queue = mq.queue("tasks")

    @mq.task(unique_for=86_401)
    def nothing() -> None: ...

    for enqueueing in (nothing.enqueue(), nothing.enqueue_many([()])):
        with pytest.raises(InvalidRequestError, match="completed_retention_seconds"):
            await enqueueing
    assert (await mq.admin.list_items("tasks")).rows == []
    await nothing.with_options(unique_for=86_400).enqueue()
    await nothing.with_options(unique_for=None).enqueue()

    enough: list[dict[str, Any]] = [
        {"completed_retention_seconds": 86_401},
        {"completed_retention_seconds": 0},
        {"completed_retention_seconds": 1, "retention_enabled": False},
    ]
    for options in enough:
        await queue.configure(**options)
        await nothing.enqueue()


async def test_the_queue_is_asked_once_how_long_it_remembers(
    mq: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    @mq.task(unique_for=60)
    def nothing() -> None: ...

    await nothing.enqueue()
    monkeypatch.setattr(mq.admin, "get_queue", None)
    await nothing.enqueue()


async def test_the_id_of_a_unique_call_is_that_of_its_payload() -> None:
    def take(a: int) -> None: ...

    task = Task(take, "take", TaskOptions(unique_for=60), ManualClock(120 * SECOND))
    for item in (task.to_item((1,), {}), task.to_item((), {"a": 1})):
        digest = hashlib.sha256(item.payload).hexdigest()[:32]
        assert item.transaction_id == f"unique:{digest}:2"


async def test_many_are_enqueued_at_once(mq: AsyncClient) -> None:
    @mq.task
    async def double(a: int) -> int:
        return 2 * a

    jobs = await double.enqueue_many([(n,) for n in range(250)])
    await run_all(mq)
    assert [await job.result() for job in jobs] == [2 * n for n in range(250)]


@pytest.mark.parametrize(
    "options", [{}, {"timeout": 0.5}, {"priority": 3}, {"unique_for": 10 * 365 * 86_400}]
)
async def test_jobs_enqueued_at_once_are_as_if_enqueued_one_by_one(
    mq: AsyncClient, options: dict[str, Any]
) -> None:
    for queue in ("many", "each"):
        await mq.queue(queue).configure(kind="work", completed_retention_seconds=0)

    @mq.task(name='"[0]" {}', **options)
    def anything(*args: Any) -> None: ...

    calls: list[Any] = [(), (1,), ("[0]", None), ([0], {"a": [0]}), (2.5, "ü\n"), [7, 8], ((1, 2),)]
    await anything.with_options(queue="many").enqueue_many(calls)
    for args in calls:
        await anything.with_options(queue="each").enqueue(*args)
    many, each = [(await mq.admin.list_items(queue)).rows for queue in ("many", "each")]
    assert len(many) == len(calls)
    assert [(row.payload, row.priority) for row in many] == [
        (row.payload, row.priority) for row in each
    ]
    with pytest.raises(InvalidRequestError, match="JSON"):
        await anything.with_options(queue="many").enqueue_many([(1,), (object(),)])
    assert (await mq.admin.list_items("many")).rows == many


async def test_two_tasks_with_one_name_are_refused(mq: AsyncClient) -> None:
    mq.task(name="x")(lambda: 1)
    with pytest.raises(InvalidRequestError, match="two tasks"):
        mq.task(name="x")(lambda: 2)


async def test_a_task_needs_a_work_queue(mq: AsyncClient) -> None:
    await mq.queue("log").push(1)
    with pytest.raises(Exception, match="ordered"):
        await mq.task(queue="log")(lambda: 1).enqueue()


async def test_options_of_one_call_do_not_stay(mq: AsyncClient) -> None:
    task = mq.task(priority=1)(lambda: 1)
    job = await task.with_options(priority=9).enqueue()
    assert (await job.item()).priority == 9
    assert task.options.priority == 1
    assert (await mq.queue("tasks").info()).kind is QueueKind.WORK


def test_the_synchronous_client_has_tasks_too(tmp_path: Path) -> None:
    with Client(f"sqlite:///{tmp_path}/mq.db") as mq:

        @mq.task(queue="sums")
        def add(a: int, b: int) -> int:
            return a + b

        job = add.schedule(after=0).with_options(priority=9).enqueue(1, 2)
        assert [each.is_new for each in add.enqueue_many([(3, 4)])] == [True]
        assert job.item().priority == 9

        async def work() -> None:
            async with AsyncClient(f"sqlite:///{tmp_path}/mq.db") as other:
                await Worker(other, mq.tasks.queues, tasks=mq.tasks, burst=True).run()

        asyncio.run(work())
        assert job.result(timeout=5) == 3
        assert mq.job(job.id).state() is JobState.COMPLETED
