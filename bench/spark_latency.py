"""How long a push takes while somebody exports the whole queue, and while nobody does.

Pushes come at a steady rate whatever the answers take, and count from when they were due: a broker
that stalls is charged for all that it held up. The exports run in processes of their own.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

import httpx

RATE = 100
"""Pushes a second: what one broker has to do besides, not what it can."""

_EXPORT = """
import sys
from monarq.spark.access import SeqRange, open_access
access = open_access(sys.argv[1])
plan = access.plan("orders").to_pylist()
ranges = [
    SeqRange("orders", p["partition_id"], p["partition"], p["first_seq"], p["last_seq"])
    for p in plan
]
columns = ["queue", "partition", "seq", "message_id", "transaction_id", "payload", "created_at"]
print("ready", flush=True)
while True:
    for batch in access.messages(ranges, columns):
        pass
"""


async def measure(url: str, seconds: float, exporters: int) -> list[float]:
    """The seconds that each push took."""
    readers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", _EXPORT, url, stdout=asyncio.subprocess.PIPE
        )
        for _ in range(exporters)
    ]
    try:
        for reader in readers:
            assert reader.stdout is not None
            await reader.stdout.readline()
        return await _push(url, seconds)
    finally:
        for reader in readers:
            reader.kill()
            await reader.wait()


async def _push(url: str, seconds: float) -> list[float]:
    took: list[float] = []
    body = {"items": [{"queue": "beside", "payload": {"n": 1}}]}
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:

        async def push(due: float) -> None:
            answer = await client.post("/api/v1/push", json=body)
            answer.raise_for_status()
            took.append(time.perf_counter() - due)

        await push(time.perf_counter())
        took.clear()
        started = time.perf_counter()
        async with asyncio.TaskGroup() as pushes:
            for number in range(round(seconds * RATE)):
                due = started + number / RATE
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                pushes.create_task(push(due))
    return took


def p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98]
