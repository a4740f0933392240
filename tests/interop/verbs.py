"""Short words for what most tests do with a client, and what they compare."""

import asyncio
from collections.abc import Awaitable
from datetime import datetime
from typing import Any

import pytest


def of_version(version: str) -> pytest.MarkDecorator:
    """For a test of what only this version of the client has."""
    return pytest.mark.parametrize("queen_mq", [version], indirect=True)


async def push(queen: Any, name: str, *payloads: Any, partition: str = "Default") -> list[Any]:
    queue = queen.queue(name).partition(partition)
    return await queue.push([{"data": payload} for payload in payloads])


async def pop(queen: Any, name: str, *, group: str | None = None, batch: int = 100) -> list[Any]:
    """What is there now."""
    return await _popping(queen, name, group).wait(False).batch(batch).pop()


async def await_pop(
    queen: Any, name: str, *, group: str | None = None, batch: int = 100
) -> list[Any]:
    """What is there, or comes."""
    return await _popping(queen, name, group).wait(True).timeout_millis(15_000).batch(batch).pop()


def _popping(queen: Any, name: str, group: str | None) -> Any:
    queue = queen.queue(name).partitions(1)
    return queue if group is None else queue.group(group)


async def pending(queen: Any, name: str) -> int:
    """What the slowest group has before it."""
    return (await queen.admin.get_queue_detail(name))["queue"]["messages"]["pending"]


def started(consuming: Awaitable[Any]) -> asyncio.Task[Any]:
    """A consumer that runs while the test goes on."""

    async def run() -> Any:
        return await consuming

    return asyncio.create_task(run())


def data(messages: list[Any]) -> list[Any]:
    return [message["data"] for message in messages]


def moment(text: str) -> datetime:
    """Of an ISO 8601 text, which must name its offset."""
    found = datetime.fromisoformat(text)
    assert found.tzinfo is not None, text
    return found


class Seen(list[Any]):
    """A handler that notes what it is given."""

    async def __call__(self, given: Any) -> None:
        self.extend(data(given if isinstance(given, list) else [given]))
