"""A broker in a process of its own, watched: how much memory and CPU it takes."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import psutil

from monarq.cli.own_broker import OwnBroker, own_broker

_LOOK_SECONDS = 0.1


class Watched:
    """The broker's process while it is measured."""

    def __init__(self, broker: OwnBroker) -> None:
        self.url = broker.url
        self._process = psutil.Process(broker.pid)
        self.most_memory = 0

    def cpu_seconds(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system

    def memory(self) -> int:
        now: int = self._process.memory_info().rss
        self.most_memory = max(self.most_memory, now)
        return now

    async def watch(self) -> None:
        while True:
            self.memory()
            await asyncio.sleep(_LOOK_SECONDS)


@contextlib.asynccontextmanager
async def served(store: str, arguments: Sequence[str] = ()) -> AsyncIterator[Watched]:
    async with own_broker(store, arguments) as broker:
        watched = Watched(broker)
        watching = asyncio.create_task(watched.watch())
        try:
            yield watched
        finally:
            watching.cancel()


@contextlib.contextmanager
def echo_server() -> Iterator[str]:
    """The address of a bare echo in a process of its own."""
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "echo.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.stdin.close()
