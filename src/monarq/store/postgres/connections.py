"""Connections at hand, in front of asyncpg's pool.

The pool connects, lets wait, cleans up after what went wrong, and closes. To ask it takes longer
than a short statement, so what comes back in good order stays here for the next call, unless
somebody waits for the pool.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Any

import asyncpg

_IDLE_SECONDS = 60.0
"""What nobody needed for so long goes back to the pool, which closes it after a while."""


class Connections:
    def __init__(self, pool: asyncpg.Pool, patience_seconds: float) -> None:
        """`patience_seconds`: for all that is done with a connection, but for the statements."""
        self._pool = pool
        # asyncpg limits the statement, neither the wait for a connection nor what it does to one
        # whose statement it gave up; against a server that has stopped that may take for ever.
        self._patience = patience_seconds
        self._loop = asyncio.get_running_loop()
        self._idle: deque[tuple[float, Any]] = deque()
        self._calls = 0
        self._waiting = 0
        self._finished = asyncio.Event()

    def lent(self) -> _Lent:
        """A connection for as long as the block lasts."""
        return _Lent(self, self._loop.time() + self._patience)

    async def close(self) -> None:
        """Wait for calls under way, but not for a server that no longer answers."""
        try:
            async with asyncio.timeout(self._patience):
                # The pool itself waits for no call that is still connecting, and nobody would
                # then close its connection.
                while self._calls:
                    self._finished.clear()
                    await self._finished.wait()
                while self._idle:
                    await self._pool.release(self._idle.pop()[1])
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()
        except asyncio.CancelledError:
            self._pool.terminate()
            raise

    async def take(self, deadline: float) -> Any:
        self._calls += 1
        try:
            while self._idle:
                connection = self._idle.pop()[1]
                if _is_open(connection):
                    return connection
                await self._release(connection, deadline)
            self._waiting += 1
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._pool.acquire()
            finally:
                self._waiting -= 1
        except BaseException:
            self._count_down()
            raise

    async def give_back(self, connection: Any, deadline: float, *, in_order: bool) -> None:
        """`in_order`: nothing was given up on the way, so that it is as it was."""
        try:
            if self._waiting or not in_order:
                await self._release(connection, deadline)
                return
            now = self._loop.time()
            self._idle.append((now, connection))
            if now - self._idle[0][0] > _IDLE_SECONDS:
                await self._release(self._idle.popleft()[1], deadline)
        finally:
            self._count_down()

    async def _release(self, connection: Any, deadline: float) -> None:
        async with asyncio.timeout_at(deadline):
            await self._pool.release(connection)

    def _count_down(self) -> None:
        self._calls -= 1
        if not self._calls:
            self._finished.set()


class _Lent:
    """Of a class rather than a generator: every call of the store passes here."""

    __slots__ = ("_connection", "_connections", "_deadline")

    def __init__(self, connections: Connections, deadline: float) -> None:
        self._connections = connections
        self._deadline = deadline

    async def __aenter__(self) -> Any:
        self._connection = await self._connections.take(self._deadline)
        return self._connection

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._connections.give_back(self._connection, self._deadline, in_order=error is None)


def _is_open(connection: Any) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:
        # It broke, and the pool has noticed and taken it back.
        return False
