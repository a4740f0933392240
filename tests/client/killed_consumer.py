"""A consumer that is killed by some messages: `python -m tests.client.killed_consumer <order>`.

Every message that was handled is a line of the file `handled`, written before the handler returns.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from monarq.client.async_client import AsyncClient


class Order(msgspec.Struct, frozen=True):
    address: str
    schema: str | None
    handled: str
    each: bool
    concurrency: int
    batch: int
    culprits: list[str]
    wait_for: int
    """The culprit strikes when so many messages are completed."""
    total: int


def _note(handled: Path, payload: str) -> None:
    with handled.open("a") as file:
        file.write(f"{payload}\n")


async def consume(order: Order) -> None:
    handled = Path(order.handled)

    async def strike() -> None:
        while (await queue.stats()).completed < order.wait_for:  # noqa: ASYNC110 - has no event
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

    async def handle(given: Any) -> None:
        messages = [given] if order.each else list(given)
        for message in messages:
            if message.payload in order.culprits:
                await strike()
            if order.each:
                _note(handled, message.payload)
        if not order.each:
            for message in messages:
                _note(handled, message.payload)

    place = {} if order.schema is None else {"schema": order.schema}
    async with AsyncClient(order.address, **place) as mq:
        queue = mq.queue("q")
        consumer = queue.consumer(
            handle, each=order.each, concurrency=order.concurrency, batch=order.batch, lease=0.5
        )
        async with asyncio.timeout(30), consumer:
            while (stats := await queue.stats()).completed + stats.dead < order.total:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(consume(msgspec.json.decode(sys.argv[1], type=Order)))
