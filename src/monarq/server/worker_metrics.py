"""Metrics of processes that share a port: each answers the others on a socket of its own.

One that does not answer in time is left out and counted, never waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from monarq.server.metric_families import Family

TIMEOUT_SECONDS = 0.5
_LARGEST = 64 << 20
_decoder = msgspec.msgpack.Decoder(list[Family])


class WorkerMetrics:
    """Reads the others' families, and hands out one's own."""

    def __init__(self, directory: Path, worker: int) -> None:
        self._directory = directory
        self._path = directory / f"metrics-{worker}.sock"
        self._server: asyncio.Server | None = None
        self.unreachable = 0

    async def start(self, families: Callable[[], list[Family]]) -> None:
        """Answer whoever connects with what `families` says then."""

        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, TimeoutError):
                writer.write(msgspec.msgpack.encode(families()))
                await asyncio.wait_for(writer.drain(), TIMEOUT_SECONDS)
            writer.close()

        # A process of this number that was killed leaves its socket behind.
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(answer, path=self._path)
        self._path.chmod(0o600)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def of_others(self) -> list[list[Family]]:
        """The families of every other process that answers."""
        paths = [path for path in self._directory.glob("metrics-*.sock") if path != self._path]
        answers = await asyncio.gather(*(_ask(path) for path in sorted(paths)))
        self.unreachable += answers.count(None)
        return [answer for answer in answers if answer is not None]


async def _ask(path: Path) -> list[Family] | None:
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_unix_connection(path, limit=_LARGEST)
            try:
                return _decoder.decode(await reader.read(-1))
            finally:
                writer.close()
    except (OSError, TimeoutError, msgspec.MsgspecError):
        return None
