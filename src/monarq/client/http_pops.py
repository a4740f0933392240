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

import httpx

from monarq.errors import ClientClosedError

T = TypeVar("T")

#: For a broker that answers at all; a longer wait would only hold up whoever wants to go.
_PATIENCE_SECONDS = 2.0
_CONNECTED = "connection.connect_tcp.complete"
#: Lanes that are kept for the next ones who wait.
_FREE_LANES = 16


class Lane:
    """A client for one request at a time, so that its connection is known."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.is_left = False
        self._url = ""
        self._sockets: dict[str, Any] = {}

    def extensions(self, url: str) -> dict[str, Any]:
        """For the next request, which goes to a broker there."""
        self._url = url
        return {"trace": self._trace}

    async def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event == _CONNECTED:
            self._sockets[self._url] = info["return_value"].get_extra_info("socket")
            if self.is_left:
                self._close_for_writing()

    def leave(self) -> None:
        self.is_left = True
        self._close_for_writing()

    def _close_for_writing(self) -> None:
        connection = self._sockets.get(self._url)
        if connection is not None:
            # It may be closed already.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)


class HttpPops:
    """Those under way. Who waits has a lane of his own; others are answered in a moment."""

    def __init__(self, connect: Callable[[], httpx.AsyncClient]) -> None:
        self._connect = connect
        self._free: list[Lane] = []
        self._under_way: set[_Pop[Any]] = set()
        self._is_closed = False

    async def run(
        self,
        call: Callable[[Lane | None], Coroutine[Any, Any, T]],
        release: Callable[[T], Coroutine[Any, Any, None]],
        *,
        waits: bool,
    ) -> T:
        """`release` gives back what a result has brought, if anything."""
        lane = None
        if waits:
            lane = self._free.pop() if self._free else Lane(self._connect())
        pop = _Pop(call(lane), release, lane)
        self._under_way.add(pop)
        try:
            return await pop.result()
        finally:
            self._under_way.discard(pop)
            if lane is not None:
                await self._keep(lane)

    async def _keep(self, lane: Lane) -> None:
        if lane.is_left or self._is_closed or len(self._free) >= _FREE_LANES:
            await lane.http.aclose()
        else:
            self._free.append(lane)

    async def leave_all(self) -> None:
        """While what they bring can still be given back."""
        await asyncio.gather(*[pop.leave() for pop in self._under_way])

    async def close(self) -> None:
        self._is_closed = True
        while self._free:
            await self._free.pop().http.aclose()


class _Pop(Generic[T]):
    def __init__(
        self,
        call: Coroutine[Any, Any, T],
        release: Callable[[T], Coroutine[Any, Any, None]],
        lane: Lane | None,
    ) -> None:
        self._call = asyncio.ensure_future(call)
        self._release = release
        self._lane = lane
        self._is_left = False

    async def result(self) -> T:
        try:
            await asyncio.wait({self._call})
        except asyncio.CancelledError:
            await self.leave()
            raise
        if self._is_left:
            raise ClientClosedError("the client was closed meanwhile")
        return self._call.result()

    async def leave(self) -> None:
        self._is_left = True
        if self._lane is not None:
            self._lane.leave()
        try:
            await asyncio.wait({self._call}, timeout=_PATIENCE_SECONDS)
        finally:
            self._call.cancel()
        if self._call.done() and not self._call.cancelled() and self._call.exception() is None:
            await self._release(self._call.result())
