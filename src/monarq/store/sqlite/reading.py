"""A second connection to the file, which only reads: long exports keep nobody from writing.

In memory there is no second one: then the first one reads.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from monarq.errors import StoreUnavailableError
from monarq.store.sqlite.connection import BUSY_SECONDS, Connection

T = TypeVar("T")


class Reader:
    """Opened by the first read. Every read sees one state of the store and is short: a long one
    would keep the write-ahead log from being cleared."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._thread: ThreadPoolExecutor | None = None
        self._db: sqlite3.Connection | None = None
        self._closed = False

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection.path == ":memory:":
            return await self._connection.run(lambda: self._look(self._connection.db, work))
        if self._closed:
            raise StoreUnavailableError(f"the store {self._connection.path} is closed")
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="monarq-sqlite-reader")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._thread, self._connection.guarded, lambda: self._look(self._opened(), work)
        )

    async def close(self) -> None:
        self._closed = True
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                await asyncio.get_running_loop().run_in_executor(thread, self._close)
            finally:
                thread.shutdown(wait=False)

    def _look(self, db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
        def look() -> T:
            db.execute("begin")
            try:
                return work(db)
            finally:
                if db.in_transaction:
                    db.execute("rollback")

        return self._connection.patiently(look)

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            db = sqlite3.connect(self._connection.path, timeout=BUSY_SECONDS, isolation_level=None)
            db.execute("pragma query_only = on")
            db.execute(f"pragma cache_size = -{4 << 10}")
            self._db = db
        return self._db

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
