"""A worker runs a shell command only if the broker vouches for that very item."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import jwt
import msgspec
import pytest

from monarq.client.async_client import AsyncClient
from monarq.client.schedules import Schedule
from monarq.errors import CommandsRefusedError, ForbiddenError
from monarq.job import CommandJob, TaskJob
from monarq.jobs.worker import Worker
from monarq.model import Item, ItemState, Push, PushItem
from tests.postgres_server import fresh_database
from tests.server.serving import ServerProcess
from tests.shared_postgres import POSTGRES_NAMES

SECRET = "a secret of thirty-two bytes or more"
QUEUE = "work"


class Roles:
    """Clients of one broker or store; those of a store without a broker may do everything."""

    def __init__(self, admin: AsyncClient, writer: AsyncClient, jobs: AsyncClient) -> None:
        self.admin = admin
        self.writer = writer
        self.jobs = jobs


def token(role: str) -> str:
    claims = {"sub": role, "role": role, "exp": int(time.time()) + 3600}
    return jwt.encode(claims, SECRET, "HS256")


@pytest.fixture(params=["sqlite", "postgres", "broker", "broker on postgres"])
async def roles(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_servers: Mapping[str, str]
) -> AsyncIterator[Roles]:
    kind: str = request.param
    async with contextlib.AsyncExitStack() as stack:
        address = f"sqlite:///{tmp_path}/mq.db"
        if kind.endswith("postgres"):
            server = postgres_servers[POSTGRES_NAMES[-1]]
            address = await stack.enter_async_context(fresh_database(server))
        if not kind.startswith("broker"):
            client = await stack.enter_async_context(AsyncClient(address))
            yield Roles(client, client, client)
            return
        settings = {"store": address, "data_dir": str(tmp_path / "data"), "auth": True}
        broker = ServerProcess(settings | {"jwt_secret": SECRET})
        await asyncio.to_thread(stack.enter_context, broker)
        clients = [
            await stack.enter_async_context(AsyncClient(broker.url, token=token(role)))
            for role in ("admin", "write", "jobs")
        ]
        yield Roles(*clients)


@pytest.fixture
async def start_worker(roles: Roles) -> AsyncIterator[Callable[..., Worker]]:
    async with contextlib.AsyncExitStack() as stack:

        def start(**options: Any) -> Worker:
            worker = Worker(roles.jobs, [QUEUE], **options)
            running = asyncio.create_task(worker.run())

            async def end() -> None:
                worker.stop_now()
                await running

            stack.push_async_callback(end)
            return worker

        yield start


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            await asyncio.sleep(0.01)


async def until_state(mq: AsyncClient, item_id: str, state: ItemState) -> Item:
    async def is_there() -> bool:
        return (await mq.admin.get_item(item_id)).state is state

    await until(is_there)
    return await mq.admin.get_item(item_id)


async def enqueue(mq: AsyncClient, command: str) -> str:
    payload = msgspec.json.encode(CommandJob(command=command))
    [pushed] = await mq.link.push(Push([PushItem(QUEUE, payload)], commands=True))
    return pushed.message_id


async def push_plain(mq: AsyncClient, payload: bytes) -> str:
    [pushed] = await mq.link.push(Push([PushItem(QUEUE, payload)]))
    return pushed.message_id


async def make(mq: AsyncClient, *, commands: bool) -> None:
    await mq.queue(QUEUE).configure(kind="work", runs_commands=commands, backoff_base=0)


async def test_a_queue_that_was_made_again_gives_nobody_a_shell(
    roles: Roles, start_worker: Callable[..., Worker], tmp_path: Path
) -> None:
    await make(roles.admin, commands=True)
    start_worker()
    first = await enqueue(roles.jobs, "true")
    await until_state(roles.jobs, first, ItemState.DONE)
    await roles.admin.admin.delete_queue(QUEUE)
    await make(roles.writer, commands=False)
    harm = msgspec.json.encode(CommandJob(command=f"touch {tmp_path}/harm"))
    refused = await push_plain(roles.writer, harm)
    item = await until_state(roles.jobs, refused, ItemState.DEAD)
    assert "was not enqueued as one" in (item.error or "")
    assert not (tmp_path / "harm").exists()
    await roles.admin.admin.delete_queue(QUEUE)
    await make(roles.admin, commands=True)
    again = await enqueue(roles.jobs, f"touch {tmp_path}/done")
    await until_state(roles.jobs, again, ItemState.DONE)
    assert (tmp_path / "done").exists()


async def test_a_payload_cannot_vouch_for_itself(
    roles: Roles, start_worker: Callable[..., Worker], tmp_path: Path
) -> None:
    await make(roles.writer, commands=False)
    harm = {"command": f"touch {tmp_path}/harm", "isCommand": True, "is_command": True}
    item_id = await push_plain(roles.writer, msgspec.json.encode(harm))
    start_worker()
    item = await until_state(roles.jobs, item_id, ItemState.DEAD)
    assert item.error
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("roles", ["sqlite", "postgres"], indirect=True)
async def test_a_vouched_command_runs_beside_what_is_none(
    roles: Roles, start_worker: Callable[..., Worker], tmp_path: Path
) -> None:
    """What is no job, or a task, dies with its reason; the worker goes on."""
    await make(roles.admin, commands=True)
    ids = []
    for payload in (b'{"task":"t"}', b'{"x":1}', b"[]"):
        [pushed] = await roles.jobs.link.push(Push([PushItem(QUEUE, payload)], commands=True))
        ids.append(pushed.message_id)
    good = await enqueue(roles.jobs, f"touch {tmp_path}/done")
    start_worker()
    await until_state(roles.jobs, good, ItemState.DONE)
    errors = [(await until_state(roles.jobs, one, ItemState.DEAD)).error or "" for one in ids]
    assert "asks for a task" in errors[0]
    assert (tmp_path / "done").exists()


async def test_commands_of_a_queue_that_had_tasks_before_are_leased_one_by_one(
    roles: Roles, start_worker: Callable[..., Worker], tmp_path: Path
) -> None:
    """The worker still believes that it may lease many at once."""
    done = asyncio.Event()

    class Task:
        timeout = None

        @staticmethod
        def function() -> None:
            done.set()

    await make(roles.admin, commands=False)
    worker = start_worker(tasks={"t": Task()}, concurrency=2)
    await push_plain(roles.writer, msgspec.json.encode(TaskJob(task="t")))
    await asyncio.wait_for(done.wait(), 30)
    await roles.admin.admin.pause_queue(QUEUE)
    await roles.admin.admin.delete_queue(QUEUE)
    await make(roles.admin, commands=True)
    await roles.admin.admin.pause_queue(QUEUE)
    wait = f"echo x >> {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    ids = [await enqueue(roles.jobs, wait) for _ in range(5)]
    await roles.admin.admin.resume_queue(QUEUE)

    async def leased() -> list[Item]:
        page = await roles.jobs.admin.list_items(QUEUE, state=ItemState.LEASED)
        return list(page.rows)

    begun = tmp_path / "begun"
    await until(lambda: begun.exists() and begun.read_text() == "x\n" * 2)

    async def only_two_are_leased() -> bool:
        return len(await leased()) == 2

    await until(only_two_are_leased)
    # Each has a lease of its own: one that is cancelled ends, the other goes on.
    cancelled, other = await leased()
    await roles.jobs.admin.cancel_item(cancelled.id)
    (tmp_path / "go").touch()
    for one in ids:
        if one != cancelled.id:
            await until_state(roles.jobs, one, ItemState.DONE)
            assert (await roles.jobs.admin.get_item(one)).attempts == 1
    assert (await roles.jobs.admin.get_item(cancelled.id)).state is ItemState.CANCELLED
    assert (await roles.jobs.admin.get_item(other.id)).state is ItemState.DONE
    assert worker.presence.completed >= 5


async def test_an_admin_that_redrives_a_plain_item_makes_no_command_of_it(
    roles: Roles, start_worker: Callable[..., Worker], tmp_path: Path
) -> None:
    await make(roles.writer, commands=False)
    harm = msgspec.json.encode(CommandJob(command=f"touch {tmp_path}/harm"))
    item_id = await push_plain(roles.writer, harm)
    start_worker()
    await until_state(roles.jobs, item_id, ItemState.DEAD)
    await roles.admin.queue("run").configure(kind="work", runs_commands=True)
    with pytest.raises(CommandsRefusedError):
        await roles.admin.admin.redrive(queue=QUEUE, to_queue="run")
    await roles.admin.admin.redrive(queue=QUEUE)
    await until_state(roles.jobs, item_id, ItemState.DEAD)
    assert not (tmp_path / "harm").exists()


@pytest.mark.slow
@pytest.mark.parametrize("roles", ["broker"], indirect=True)
async def test_a_worker_with_the_role_jobs_is_known_keeps_its_schedules_and_is_stopped(
    roles: Roles, tmp_path: Path
) -> None:
    await make(roles.admin, commands=True)
    payload = msgspec.json.encode(CommandJob(command="true"))
    schedule = Schedule("tick", "* * * * *", lambda id_: PushItem(QUEUE, payload), commands=True)
    worker = Worker(roles.jobs, [QUEUE], schedules=[schedule])
    running = asyncio.create_task(worker.run())

    async def is_known() -> bool:
        kinds = [await roles.writer.admin.list_records(kind) for kind in ("worker", "schedule")]
        return [[row.key for row in page.rows] for page in kinds] == [[worker.id], ["tick"]]

    await until(is_known)
    with pytest.raises(ForbiddenError):
        await roles.writer.admin.put_record("worker-stop", worker.id, b"{}")
    await roles.jobs.admin.put_record("worker-stop", worker.id, b"{}")
    await asyncio.wait_for(running, 30)
    assert (await roles.writer.admin.list_records("worker-stop")).rows == []
