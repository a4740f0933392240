"""Pops over HTTP whose callers go away: what was leased to them meanwhile is given back.

An answer may be on its way when its caller is cancelled, and the broker cannot know that nobody
will read it. So a pop that is left ends on its own: the connection is closed for writing alone,
upon which the broker either has answered already or never will, and what comes is released.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, TypeVar

from monarq.errors import ClientClosedError

T = TypeVar("T")

#: For a broker that answers at all; a longer wait would only hold up whoever wants to go.
_PATIENCE_SECONDS = 2.0
_CONNECTED = ("connection.connect_tcp.complete", "connection.connect_unix_socket.complete")


class Departure:
    """Of the caller of one request: whether he has gone, and the way to tell the broker."""

    def __init__(self, *, waits: bool) -> None:
        self.waits = waits
        """Whether the broker may hold the answer back. If not, it is here in a moment."""
        self.is_left = False
        self._socket: Any = None

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """What the HTTP client tells of a request that has a connection of its own."""
        if event in _CONNECTED:
            self._socket = info["return_value"].get_extra_info("socket")
            if self.is_left:
                self._close_for_writing()

    def leave(self) -> None:
        self.is_left = True
        if self._socket is not None:
            self._close_for_writing()

    def _close_for_writing(self) -> None:
        if self.waits:
            # It may be closed already.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)


class HttpPops:
    """Those under way. `release` gives back what a result brought, if anything."""

    def __init__(self) -> None:
        self._under_way: set[_Pop[Any]] = set()

    async def run(
        self,
        call: Callable[[Departure], Coroutine[Any, Any, T]],
        release: Callable[[T], Coroutine[Any, Any, None]],
        *,
        waits: bool,
    ) -> T:
        pop = _Pop(call, release, Departure(waits=waits))
        self._under_way.add(pop)
        try:
            return await pop.result()
        finally:
            self._under_way.discard(pop)

    async def close(self) -> None:
        """End all, while what they bring can still be given back."""
        await asyncio.gather(*[pop.leave() for pop in self._under_way])


class _Pop(Generic[T]):
    def __init__(
        self,
        call: Callable[[Departure], Coroutine[Any, Any, T]],
        release: Callable[[T], Coroutine[Any, Any, None]],
        departure: Departure,
    ) -> None:
        self._departure = departure
        self._release = release
        self._call = asyncio.ensure_future(call(departure))

    async def result(self) -> T:
        try:
            await asyncio.wait({self._call})
        except asyncio.CancelledError:
            await self.leave()
            raise
        if self._departure.is_left:
            raise ClientClosedError("the client was closed meanwhile")
        return self._call.result()

    async def leave(self) -> None:
        self._departure.leave()
        try:
            await asyncio.wait({self._call}, timeout=_PATIENCE_SECONDS)
        finally:
            self._call.cancel()
        if self._call.done() and not self._call.cancelled() and self._call.exception() is None:
            await self._release(self._call.result())
