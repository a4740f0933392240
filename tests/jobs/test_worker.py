"""A worker on a real store, running real commands and tasks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from monarq.client.async_client import AsyncClient
from monarq.clock import SystemClock
from monarq.job import AttemptResult, CommandJob, TaskJob, read_result
from monarq.jobs.commands import Stream
from monarq.jobs.live_output import LiveOutput
from monarq.jobs.presence import Presence, read_worker
from monarq.jobs.worker import Worker
from monarq.model import Item, ItemState, Push, PushItem, QueueKind
from monarq.operations.records import STOP_KIND, WORKER_KIND
from tests.postgres_server import fresh_database
from tests.shared_postgres import POSTGRES_NAMES


@pytest.fixture(params=["sqlite", "postgres"])
async def mq(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_servers: Mapping[str, str]
) -> AsyncIterator[AsyncClient]:
    async with contextlib.AsyncExitStack() as stack:
        address = f"sqlite:///{tmp_path}/mq.db"
        if request.param == "postgres":
            server = postgres_servers[POSTGRES_NAMES[-1]]
            address = await stack.enter_async_context(fresh_database(server))
        client = await stack.enter_async_context(AsyncClient(address))
        await client.queue("jobs").configure(kind="work", runs_commands=True, backoff_base=0)
        yield client


async def enqueue(mq: AsyncClient, command: str, **options: Any) -> str:
    known = {name: options.pop(name) for name in ("env", "cwd", "timeout") if name in options}
    payload = msgspec.json.encode(CommandJob(command=command, **known))
    [pushed] = await mq.link.push(Push([PushItem("jobs", payload, **options)], commands=True))
    return pushed.message_id


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            await asyncio.sleep(0.01)


async def burst(mq: AsyncClient, **options: Any) -> Worker:
    worker = Worker(mq, options.pop("queues", ["jobs"]), burst=True, **options)
    await worker.run()
    return worker


async def result_of(mq: AsyncClient, item_id: str, attempt: int = -1) -> AttemptResult:
    result = read_result((await mq.admin.get_item(item_id)).history[attempt].result)
    assert result is not None
    return result


async def test_a_command_is_run_and_its_result_kept(mq: AsyncClient) -> None:
    item_id = await enqueue(mq, "echo hello; echo oops >&2", env={"A": "b"})
    worker = await burst(mq)
    item = await mq.admin.get_item(item_id)
    result = await result_of(mq, item_id)
    assert item.state is ItemState.DONE
    assert (result.exit_code, result.stdout, result.stderr) == (0, "hello\n", "oops\n")
    assert worker.presence.completed == 1


async def test_what_fails_is_tried_again_and_then_dead(mq: AsyncClient) -> None:
    item_id = await enqueue(mq, "echo no >&2; exit 3", max_attempts=3)
    await burst(mq)
    await until_state(mq, item_id, ItemState.DEAD)
    attempts = (await mq.admin.get_item(item_id)).history
    assert [attempt.error for attempt in attempts] == ["exit code 3: no"] * 3
    [letter] = (await mq.admin.list_dead_letters(queue="jobs")).rows
    assert letter.error == "exit code 3: no"


async def until_state(mq: AsyncClient, item_id: str, state: ItemState) -> Item:
    """Bursts until the item is there: a backoff of 0 is over at once, but not in the same call."""
    async with asyncio.timeout(30):
        while (item := await mq.admin.get_item(item_id)).state is not state:
            await burst(mq)
        return item


async def test_an_error_with_what_no_store_can_keep_is_told_without_it(mq: AsyncClient) -> None:
    said = await enqueue(mq, r"printf 'a\000b\n' >&2; exit 3", max_attempts=1)
    placed = await enqueue(mq, "true", cwd="/no\0where", max_attempts=1)
    await burst(mq)
    for item_id, error in ((said, "exit code 3: a"), (placed, "cannot start: ")):
        item = await mq.admin.get_item(item_id)
        assert item.state is ItemState.DEAD
        assert (item.error or "").startswith(error)


async def test_a_job_that_takes_too_long_fails(mq: AsyncClient) -> None:
    item_id = await enqueue(mq, "echo begun; sleep 600", timeout=1.5, max_attempts=1)
    await burst(mq)
    result = await result_of(mq, item_id)
    assert result.timed_out
    assert result.stdout == "begun\n"
    assert (await mq.admin.get_item(item_id)).error == "timed out after 1.5 s"


async def test_what_is_no_job_is_buried(mq: AsyncClient) -> None:
    await mq.link.push(Push([PushItem("jobs", b'{"x":1}')], commands=True))
    await burst(mq)
    [letter] = (await mq.admin.list_dead_letters(queue="jobs")).rows
    assert "either a `command` or a `task`" in letter.error


async def test_a_command_on_a_queue_that_runs_none_is_never_run(
    mq: AsyncClient, tmp_path: Path
) -> None:
    queue = mq.queue("plain")
    await queue.configure(kind="work")
    await queue.push({"command": f"touch {tmp_path}/harm"})
    await burst(mq, queues=["plain"])
    assert not (tmp_path / "harm").exists()
    [letter] = (await queue.dead_letters()).rows
    assert "was not enqueued as one" in letter.error


async def test_output_is_seen_while_a_command_runs(mq: AsyncClient, tmp_path: Path) -> None:
    item_id = await enqueue(mq, f"echo first; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done")
    worker = Worker(mq, ["jobs"])
    running = asyncio.create_task(worker.run())

    async def is_seen() -> bool:
        return b"first" in (await mq.admin.read_output(item_id, 1)).data

    await until(is_seen)
    assert (await mq.admin.get_item(item_id)).state is ItemState.LEASED
    (tmp_path / "go").touch()
    worker.stop()
    await running
    assert (await mq.admin.get_item(item_id)).state is ItemState.DONE


class SlowAdmin:
    """Appends what a job prints when it is let; all else is the client's."""

    def __init__(self, mq: AsyncClient) -> None:
        self.admin = self
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self._admin = mq.admin

    async def append_output(self, item_id: str, attempt: int, data: bytes) -> int:
        self.asked.set()
        if data == b"first ":
            await self.go_on.wait()
        return await self._admin.append_output(item_id, attempt, data)


async def test_output_that_waits_for_its_broker_is_not_overtaken(
    mq: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monarq.jobs.live_output.FLUSH_SECONDS", 0)
    item_id = await enqueue(mq, "true")
    link = SlowAdmin(mq)
    live = LiveOutput(link, item_id, 1)  # type: ignore[arg-type]
    live.add(Stream.STDOUT, b"first ")
    await link.asked.wait()
    link.asked.clear()
    live.add(Stream.STDOUT, b"second")
    closing = asyncio.create_task(live.close())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not link.asked.is_set()
    link.go_on.set()
    await closing
    assert (await mq.admin.read_output(item_id, 1)).data == b"first second"


async def test_stopping_finishes_the_running_job(mq: AsyncClient, tmp_path: Path) -> None:
    first = await enqueue(mq, f"touch {tmp_path}/begun; sleep 0.3; echo end")
    second = await enqueue(mq, "echo never")
    worker = Worker(mq, ["jobs"])
    running = asyncio.create_task(worker.run())
    await until((tmp_path / "begun").exists)
    worker.stop()
    await running
    assert (await mq.admin.get_item(first)).state is ItemState.DONE
    assert (await mq.admin.get_item(second)).state is ItemState.READY


async def test_stopping_now_gives_the_job_back_uncounted(mq: AsyncClient, tmp_path: Path) -> None:
    item_id = await enqueue(mq, f"touch {tmp_path}/begun; exec sleep 600")
    worker = Worker(mq, ["jobs"])
    running = asyncio.create_task(worker.run())
    await until((tmp_path / "begun").exists)
    worker.stop_now()
    await running
    item = await mq.admin.get_item(item_id)
    assert (item.state, item.attempts) == (ItemState.READY, 0)


async def test_a_cancelled_job_is_ended(mq: AsyncClient, tmp_path: Path) -> None:
    item_id = await enqueue(mq, f"echo $$ > {tmp_path}/pid; exec sleep 600")
    worker = Worker(mq, ["jobs"], renew_seconds=0.1)
    running = asyncio.create_task(worker.run())
    await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    await mq.admin.cancel_item(item_id)
    pid = int((tmp_path / "pid").read_text())
    await until(lambda: not Path(f"/proc/{pid}").exists())
    worker.stop()
    await running
    assert (await mq.admin.get_item(item_id)).state is ItemState.CANCELLED


async def test_it_can_be_told_to_stop_through_the_store(mq: AsyncClient) -> None:
    worker = Worker(mq, ["jobs"], worker_id="w-1")
    await mq.admin.put_record(STOP_KIND, "w-1", b"{}")
    async with asyncio.timeout(30):
        await worker.run()
    assert (await mq.admin.list_records(STOP_KIND)).rows == []


async def test_it_tells_what_it_does(mq: AsyncClient, tmp_path: Path) -> None:
    await enqueue(mq, f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done", transaction_id="job1")
    worker = Worker(mq, ["jobs"], worker_id="w-1")
    running = asyncio.create_task(worker.run())

    async def is_told() -> bool:
        found = (await mq.admin.list_records(WORKER_KIND)).rows
        return bool(found) and bool(read_worker(found[0]).running)

    await until(is_told)
    info = read_worker(await mq.admin.get_record(WORKER_KIND, "w-1"))
    assert info is not None
    assert (info.state, info.running[0].job, info.queues) == ("running", "job1", ["jobs"])
    (tmp_path / "go").touch()
    worker.stop()
    await running
    info = read_worker(await mq.admin.get_record(WORKER_KIND, "w-1"))
    assert info is not None
    assert (info.state, info.running, info.completed) == ("stopped", [], 1)


async def test_it_does_not_tell_in_the_clear_what_an_encrypted_queue_runs(tmp_path: Path) -> None:
    database = tmp_path / "mq.db"
    async with AsyncClient(f"sqlite:///{database}", keys=[bytes(32)]) as mq:
        await mq.queue("jobs").configure(kind="work", runs_commands=True)
        await mq.queue("sealed").configure(kind="work", runs_commands=True, encryption_enabled=True)
        wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done # "
        for queue in ("jobs", "sealed"):
            payload = msgspec.json.encode(CommandJob(command=f"{wait}{queue}-marker"))
            await mq.link.push(Push([PushItem(queue, payload)], commands=True))
        worker = Worker(mq, ["jobs", "sealed"], worker_id="w-1", concurrency=2)
        running = asyncio.create_task(worker.run())
        told: dict[str, str] = {}

        async def are_told() -> bool:
            for record in (await mq.admin.list_records(WORKER_KIND)).rows:
                info = read_worker(record)
                told.update({job.queue: job.what for job in info.running} if info else {})
            return len(told) == 2

        await until(are_told)
        (tmp_path / "go").touch()
        worker.stop()
        await running
    assert told == {"jobs": f"{wait}jobs-marker", "sealed": "(encrypted)"}
    at_rest = await asyncio.to_thread(database.read_bytes)  # with all of the log, once closed
    assert b"jobs-marker" in at_rest
    assert b"sealed-marker" not in at_rest


class BrokenPresence(Presence):
    """Fails in a way that nobody expected, once."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.calls = 0

    async def tell(self) -> None:
        self.calls += 1
        if self.calls == 2:
            raise ZeroDivisionError("not expected")
        await super().tell()


async def test_a_background_task_that_breaks_is_logged_and_goes_on(
    mq: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(mq, ["jobs"], worker_id="w-1")
    presence = BrokenPresence(
        mq.link, "w-1", queues=["jobs"], concurrency=1, clock=SystemClock(), on_stop=worker.stop
    )
    worker.presence = presence
    running = asyncio.create_task(worker.run())
    await until(lambda: presence.calls == 2)
    await mq.admin.put_record(STOP_KIND, "w-1", b"{}")
    await asyncio.wait_for(running, 30)
    [record] = [record for record in caplog.records if record.exc_info]
    assert repr(record.exc_info and record.exc_info[1]) == "ZeroDivisionError('not expected')"


async def test_commands_run_side_by_side_up_to_the_concurrency(
    mq: AsyncClient, tmp_path: Path
) -> None:
    wait = (
        f"touch {tmp_path}/$N; while [ $(ls {tmp_path} | grep -c '^n') -lt 3 ]; do sleep 0.05; done"
    )
    for number in range(3):
        await enqueue(mq, wait, env={"N": f"n{number}"}, timeout=20)
    worker = await burst(mq, concurrency=3)
    assert worker.presence.completed == 3


class _Task:
    def __init__(self, function: Callable[..., Any], timeout: float | None = None) -> None:
        self.function = function
        self.timeout = timeout


@pytest.fixture
async def tasks_queue(mq: AsyncClient) -> AsyncClient:
    await mq.queue("tasks").configure(kind=QueueKind.WORK, max_attempts=1)
    return mq


async def run_task(mq: AsyncClient, function: Callable[..., Any], *args: Any, **kw: Any) -> str:
    job = TaskJob(task="f", args=list(args))
    pushed = await mq.queue("tasks").push(msgspec.to_builtins(job))
    await burst(mq, queues=["tasks"], tasks={"f": _Task(function, **kw)}, concurrency=5)
    return pushed.message_id


async def test_a_task_returns_its_value(tasks_queue: AsyncClient) -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    item_id = await run_task(tasks_queue, add, 1, 2)
    assert (await result_of(tasks_queue, item_id)).value == 3
    item_id = await run_task(tasks_queue, lambda a: [a], "plain functions too")
    assert (await result_of(tasks_queue, item_id)).value == ["plain functions too"]


async def test_a_task_that_raises_keeps_its_traceback(tasks_queue: AsyncClient) -> None:
    def divide(a: int) -> float:
        return a / 0

    item_id = await run_task(tasks_queue, divide, 1)
    item = await tasks_queue.admin.get_item(item_id)
    assert (item.state, item.error) == (ItemState.DEAD, "ZeroDivisionError: division by zero")
    assert "return a / 0" in ((await result_of(tasks_queue, item_id)).traceback or "")


async def test_a_task_that_takes_too_long_fails(tasks_queue: AsyncClient) -> None:
    async def sleep() -> None:
        await asyncio.sleep(600)

    item_id = await run_task(tasks_queue, sleep, timeout=0.1)
    assert (await tasks_queue.admin.get_item(item_id)).error == "timed out after 0.1 s"


async def test_a_value_that_is_no_json_fails(tasks_queue: AsyncClient) -> None:
    item_id = await run_task(tasks_queue, lambda: object())
    assert "object" in ((await tasks_queue.admin.get_item(item_id)).error or "")


async def test_an_unknown_task_fails_and_says_what_is_known(tasks_queue: AsyncClient) -> None:
    await tasks_queue.queue("tasks").push({"task": "other"})
    item_id = await run_task(tasks_queue, lambda: 1)
    [letter] = (await tasks_queue.queue("tasks").dead_letters()).rows
    assert letter.error == "this worker knows no task 'other' (it knows f)"
    assert (await result_of(tasks_queue, item_id)).value == 1


async def test_a_hundred_jobs_and_five_workers_run_each_once(
    mq: AsyncClient, tmp_path: Path
) -> None:
    ids = [await enqueue(mq, f"echo x >> {tmp_path}/{number}") for number in range(100)]
    await asyncio.gather(*(burst(mq, concurrency=2) for _ in range(5)))
    assert {(tmp_path / str(number)).read_text() for number in range(100)} == {"x\n"}
    states = {(await mq.admin.get_item(item_id)).state for item_id in ids}
    assert states == {ItemState.DONE}
