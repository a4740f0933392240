"""A broker of one's own for a while: `monarq serve` in a process, on a free port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence

from monarq.errors import MonarqError

_START_SECONDS = 30.0
_STOP_SECONDS = 15.0


class OwnBrokerError(MonarqError):
    """The broker did not start, or ended before its time."""

    code = "broker_failed"


class OwnBroker:
    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self.pid = pid


@contextlib.asynccontextmanager
async def own_broker(store: str, arguments: Sequence[str] = ()) -> AsyncIterator[OwnBroker]:
    """A broker on `store` (empty: a new SQLite file), with a data directory that is deleted
    afterwards. Settings of the user do not count: what is not in `arguments` is at its default."""
    with tempfile.TemporaryDirectory(prefix="monarq-bench-") as directory:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("MONARQ_")}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "monarq", "serve", "--port", "0", "--log-format", "json"),
            *("--data-dir", directory, "--store", store, *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=kept | {"XDG_CONFIG_HOME": directory},
        )
        assert process.stderr is not None
        reading = None
        try:
            url = await _listening(process.stderr)
            reading = asyncio.create_task(_discard(process.stderr))
            yield OwnBroker(url, process.pid)
        finally:
            await _stop(process)
            if reading is not None:
                await reading


async def _listening(log: asyncio.StreamReader) -> str:
    """The address that the broker says it listens on."""
    said: list[str] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_START_SECONDS):
            while line := await log.readline():
                said.append(line.decode("utf-8", "replace").strip())
                with contextlib.suppress(ValueError):
                    url = json.loads(line).get("url")
                    if isinstance(url, str):
                        return url
    raise OwnBrokerError("the broker did not start: " + " | ".join(said[-5:]))


async def _discard(log: asyncio.StreamReader) -> None:
    """Its log, which would fill the pipe."""
    while await log.read(1 << 16):
        pass


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), _STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
