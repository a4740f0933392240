"""Pushes that were buffered while the store was out: commands stay commands, and no other item
becomes one."""

from pathlib import Path

import msgspec
import pytest

from monarq.broker.broker import Broker
from monarq.broker.failover import Route
from monarq.errors import CommandsRefusedError
from monarq.model import Pop, Push, PushItem, PushStatus, QueueKind
from tests.broker.buffering import until
from tests.broker.conftest import StartBroker


async def make_queues(broker: Broker) -> None:
    await broker.configure("jobs", kind=QueueKind.WORK, options={"runsCommands": True})
    await broker.configure("plain", kind=QueueKind.WORK)


async def direct(broker: Broker) -> None:
    """Wait until what was buffered is in the store."""
    failover = broker._parts.failover
    assert failover is not None
    await until(lambda: failover.route is Route.DIRECT)


async def marks(broker: Broker, queue: str) -> list[bool]:
    popped = await broker.pop(Pop(queue=queue, batch=100, auto_ack=True))
    return [message.is_command for message in popped.messages]


def codes_of_what_was_set_aside(directory: Path) -> list[str]:
    files = directory.rglob("*.poison")
    lines = [line for file in files for line in file.read_bytes().splitlines()]
    return [msgspec.json.decode(line)["code"] for line in lines]


async def buffer(broker: Broker, queue: str, *, commands: bool) -> None:
    [pushed] = await broker.push(Push([PushItem(queue, b'{"command":"id"}')], commands=commands))
    assert pushed.status is PushStatus.BUFFERED


async def test_what_was_buffered_has_the_mark_that_it_was_pushed_with(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = await start_broker(clock=None, buffer_dir=tmp_path, buffer_retry_seconds=0.01)
    await make_queues(broker)
    await broker.set_maintenance(push=True)
    await buffer(broker, "jobs", commands=True)
    await buffer(broker, "plain", commands=False)
    await buffer(broker, "jobs", commands=True)
    await broker.set_maintenance(push=False)
    await direct(broker)
    assert await marks(broker, "jobs") == [True] * 2
    assert await marks(broker, "plain") == [False]


async def test_a_buffered_push_is_no_command_although_its_queue_runs_commands_by_then(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = await start_broker(clock=None, buffer_dir=tmp_path, buffer_retry_seconds=0.01)
    await make_queues(broker)
    await broker.set_maintenance(push=True)
    await buffer(broker, "plain", commands=False)
    await buffer(broker, "jobs", commands=True)
    for queue, runs_commands in (("plain", True), ("jobs", False)):
        await broker.delete_queue(queue)
        options = {"runsCommands": runs_commands}
        await broker.configure(queue, kind=QueueKind.WORK, options=options)
    await broker.set_maintenance(push=False)
    await direct(broker)
    for queue in ("plain", "jobs"):
        assert await marks(broker, queue) == []
    assert codes_of_what_was_set_aside(tmp_path) == ["commands_refused"] * 2


async def test_a_push_of_anything_else_is_refused_as_before_the_outage(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = await start_broker(clock=None, buffer_dir=tmp_path, buffer_retry_seconds=0.01)
    await make_queues(broker)
    for queue, commands in (("jobs", False), ("plain", True)):
        with pytest.raises(CommandsRefusedError):
            await broker.push(Push([PushItem(queue, b"1")], commands=commands))
