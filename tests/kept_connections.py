"""Connections to PostgreSQL that serve one test of a module after another.

The first call of a procedure takes several times as long as a later one on the same connection:
PostgreSQL compiles the procedure and plans its statements. A store that a fixture opens by
`open_store`, or within `used`, has the connections of an earlier test's store. A store that a test
opens by itself makes its own.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import asyncpg

from monarq.store import Store, open_store

_create_pool = asyncpg.create_pool
_used: ContextVar["KeptConnections | None"] = ContextVar("kept connections", default=None)


class KeptConnections:
    """All of one event loop. They are closed by `close`, not by the stores that use them."""

    def __init__(self) -> None:
        self._free: dict[Any, list[asyncpg.Pool]] = defaultdict(list)

    async def open_store(self, address: str, **options: Any) -> Store:
        with self.used():
            return await open_store(address, **options)

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        token = _used.set(self)
        try:
            yield
        finally:
            _used.reset(token)

    async def take(self, dsn: str, **options: Any) -> "_Pool":
        free = self._free[dsn, *sorted(options.items())]
        pool = free.pop() if free else await _create_pool(dsn, **options)
        return _Pool(pool, free.append)

    async def close(self) -> None:
        for pools in self._free.values():
            for pool in pools:
                await pool.close()
        self._free.clear()


class _Pool:
    """What a store uses of a pool. When it is closed, its connections are kept if all are free."""

    def __init__(self, pool: asyncpg.Pool, keep: Callable[[asyncpg.Pool], None]) -> None:
        self._pool = pool
        self._keep = keep
        self._is_closed = False

    def acquire(self) -> Any:
        if self._is_closed:
            raise asyncpg.InterfaceError("pool is closed")
        return self._pool.acquire()

    async def release(self, connection: Any) -> None:
        await self._pool.release(connection)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._pool.get_idle_size() == self._pool.get_size():
            self._keep(self._pool)
        else:
            await self._pool.close()

    def terminate(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._pool.terminate()


async def _new_or_kept_pool(dsn: str, **options: Any) -> Any:
    kept = _used.get()
    return await (_create_pool if kept is None else kept.take)(dsn, **options)


asyncpg.create_pool = _new_or_kept_pool
