"""Hands what a command prints to the store while it runs, for those who watch."""

from __future__ import annotations

import asyncio
import logging

from monarq.client.link import Link
from monarq.errors import MonarqError
from monarq.jobs.commands import Stream

log = logging.getLogger("monarq.worker")

FLUSH_SECONDS = 0.5
LIMIT = 1 << 20
_MARK = b"\n[... the rest is in the attempt's result ...]\n"


class LiveOutput:
    """Gathers for a moment, so that a chatty command costs two writes a second, not thousands.
    What cannot be written is dropped: the result of the attempt has it."""

    def __init__(self, link: Link, item_id: str, attempt: int) -> None:
        self._link = link
        self._item_id = item_id
        self._attempt = attempt
        self._waiting = bytearray()
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()

    def add(self, _: Stream, data: bytes) -> None:
        if self._size > LIMIT:
            return
        self._size += len(data)
        self._waiting += data[: LIMIT + len(data) - self._size] if self._size > LIMIT else data
        if self._size > LIMIT:
            self._waiting += _MARK
        if self._task is None:
            self._task = asyncio.create_task(self._flush_soon())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        await self._flush()

    async def _flush_soon(self) -> None:
        await asyncio.sleep(FLUSH_SECONDS)
        self._task = None
        await self._flush()

    async def _flush(self) -> None:
        # One at a time: a write that waits for its broker to return is not overtaken.
        async with self._writing:
            data = bytes(self._waiting)
            self._waiting.clear()
            if not data:
                return
            try:
                await self._link.admin.append_output(self._item_id, self._attempt, data)
            except MonarqError as error:
                log.debug("output of %s is not shown live: %s", self._item_id, error)
            except Exception:
                log.exception("output of %s is not shown live", self._item_id)
