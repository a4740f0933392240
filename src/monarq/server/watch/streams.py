"""Streams of server-sent events to pages that watch: of each thing first all of it, then what
changes. One stream a page, so many at most, and all of them end at once when the broker drains.

A stream that has nothing to tell says so every 15 seconds, so that both sides notice when the
other is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from monarq.errors import OverloadedError

MOST_STREAMS = 256
"""Of a process."""
TICK_SECONDS = 15.0
RECONNECT_MS = 1000

_encode = msgspec.json.Encoder().encode

Told = AsyncIterator[tuple[str, Any]]
"""Names of events and what they tell."""


def event(name: str, data: Any) -> bytes:
    # JSON has no line breaks of its own, so one line is enough.
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode(data))


class Streams:
    """One a process."""

    def __init__(self) -> None:
        self.open = 0
        self._ended = asyncio.Event()

    def end(self) -> None:
        """The broker drains: every stream says so and ends."""
        self._ended.set()

    def check_room(self) -> None:
        if self.open >= MOST_STREAMS:
            raise OverloadedError(f"{self.open} pages watch already: ask again and again instead")

    async def stream(
        self,
        hello: Any,
        topics: list[Told],
        now: Callable[[], str],
        may_go_on: Callable[[], Awaitable[bool]],
    ) -> AsyncIterator[bytes]:
        """What a page gets. `topics` are asked in turn, each for its next event when it was told
        the last one. `may_go_on` is asked before anything is told."""
        self.check_room()
        self.open += 1
        asked: dict[asyncio.Future[Any], Told] = {}
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            yield b"retry: %d\n\n%b" % (RECONNECT_MS, event("hello", hello))
            for topic in topics:
                asked[asyncio.ensure_future(_next(topic))] = topic
            while not self._ended.is_set():
                done, _ = await asyncio.wait(
                    {ended, *asked}, timeout=TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if not await may_go_on():
                    break
                if not done:
                    yield b": here\n" + event("tick", {"at": now()})
                for future in done - {ended}:
                    topic = asked.pop(future)
                    told = future.result()
                    if told is not None:
                        asked[asyncio.ensure_future(_next(topic))] = topic
                        yield event(*told)
            yield event("bye", {})
        finally:
            self.open -= 1
            await _cancel([ended, *asked])
            for topic in topics:
                await _close(topic)


async def _next(topic: Told) -> tuple[str, Any] | None:
    return await anext(topic, None)


async def _cancel(futures: list[asyncio.Future[Any]]) -> None:
    for future in futures:
        future.cancel()
    await asyncio.gather(*futures, return_exceptions=True)


async def _close(topic: Told) -> None:
    close: Callable[[], Awaitable[None]] | None = getattr(topic, "aclose", None)
    if close is not None:
        with contextlib.suppress(RuntimeError):
            await close()
