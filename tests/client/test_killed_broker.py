"""Consumers whose broker is killed again and again, in the middle of their joint calls."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from monarq.client.async_client import AsyncClient
from monarq.client.received import Received
from tests.kept_schemas import empty_schema
from tests.server.serving import ServerProcess
from tests.shared_postgres import POSTGRES_NAMES

PARTITIONS = 4
MESSAGES = 100 * PARTITIONS
CONSUMERS = 6
KILLS = (50, 150, 250)
"""After so many messages."""


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_nobody_is_said_to_be_late_who_was_not(
    store: str,
    postgres_servers: Mapping[str, str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings: dict[str, Any] = {"data_dir": tmp_path, "store": f"sqlite:///{tmp_path}/mq.db"}
    handled: Counter[str] = Counter()
    progress = asyncio.Condition()

    async def handle(message: Received[int]) -> None:
        async with progress:
            handled[message.id] += 1
            progress.notify_all()

    async with AsyncExitStack() as stack:
        if store == "postgres":
            settings["store"] = postgres_servers[POSTGRES_NAMES[-1]]
            settings["schema"] = await stack.enter_async_context(empty_schema(settings["store"]))
        server = stack.enter_context(ServerProcess(settings))
        mq = await stack.enter_async_context(AsyncClient(server.url))
        queue = mq.queue("q")
        await queue.configure(retry_limit=100)
        for number in range(PARTITIONS):
            await queue.partition(f"p{number}").push_many(range(MESSAGES // PARTITIONS))
        stack.enter_context(caplog.at_level(logging.WARNING, "monarq.consumer"))
        # What is leased by a call that nobody hears of is free again after this time.
        consumer = queue.consumer(handle, concurrency=CONSUMERS, lease=2)
        async with asyncio.timeout(120), consumer:
            for count in (*KILLS, MESSAGES):
                async with progress:
                    await progress.wait_for(lambda count=count: len(handled) >= count)  # type: ignore[misc]
                if count < MESSAGES:
                    await asyncio.to_thread(server.kill)
                    await asyncio.to_thread(server.start)
            # Some may have to be handled again.
            while (await queue.stats()).completed < MESSAGES:  # noqa: ASYNC110 - has no event
                await asyncio.sleep(0.05)
    late = [message for message in caplog.messages if "was not answered" in message]
    ids = [text.split()[1].rstrip(",") for text in late]
    assert [one for one in ids if handled[one] < 2] == []
