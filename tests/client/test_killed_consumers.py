"""Processes with consumers that one message kills each time: it dies, and no other message does."""

import asyncio
import signal
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from monarq.client.async_client import AsyncClient
from tests.client.killed_consumer import Order
from tests.kept_schemas import empty_schema
from tests.shared_postgres import POSTGRES_NAMES

PROJECT = Path(__file__).parents[2]
RETRY_LIMIT = 1


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize(
    ("each", "concurrency"),
    [(True, 1), (False, 1), (True, 3)],
    ids=["each", "batches", "parallel handlers"],
)
async def test_a_message_that_kills_its_consumer_dies_and_no_other_message_does(
    store: str,
    each: bool,
    concurrency: int,
    postgres_servers: Mapping[str, str],
    tmp_path: Path,
) -> None:
    partitions = ["a"] if concurrency == 1 else ["a", "b", "c"]
    payloads = [f"{partition}{n}" for partition in partitions for n in range(8)]
    async with AsyncExitStack() as stack:
        address, schema = f"sqlite:///{tmp_path}/mq.db", None
        if store == "postgres":
            address = postgres_servers[POSTGRES_NAMES[-1]]
            schema = await stack.enter_async_context(empty_schema(address))
        place = {} if schema is None else {"schema": schema}
        mq = await stack.enter_async_context(AsyncClient(address, **place))
        queue = mq.queue("q")
        await queue.configure(retry_limit=RETRY_LIMIT)
        for payload in payloads:
            await queue.partition(payload[0]).push(payload)
        order = Order(
            address=address,
            schema=schema,
            handled=str(tmp_path / "handled"),
            each=each,
            concurrency=concurrency,
            batch=8,
            culprits=["a2"],
            # The other partitions' handlers are done by then, and what is before the culprit.
            wait_for=2 + 16 if concurrency > 1 else 0,
            total=len(payloads),
        )
        kills = 0
        while (code := await _run(order)) == -signal.SIGKILL:
            kills += 1
        assert code == 0
        [dead] = (await queue.dead_letters()).rows
        assert (dead.payload, dead.attempts) == (b'"a2"', RETRY_LIMIT + 1)
    # Each handled its own once: what is before the culprit was answered, or not begun.
    handled = (tmp_path / "handled").read_text().split()
    assert sorted(handled) == sorted(set(payloads) - {"a2"})
    # 8 messages, or the 6 behind the two that were answered, are halved until there is one.
    assert kills == (2 if each else 3) + RETRY_LIMIT + 1


async def _run(order: Order) -> int:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.client.killed_consumer"),
        msgspec.json.encode(order).decode(),
        cwd=PROJECT,
    )
    return await process.wait()
