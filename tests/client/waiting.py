"""Waiting for something to be so that nobody tells of."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.005)
