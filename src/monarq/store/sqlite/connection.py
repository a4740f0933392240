"""The connection to the file, and the one thread that owns it.

Every call is a function that runs on that thread, in one transaction: the event loop never
waits for the disk, and a caller that gives up leaves no transaction half done. Knows nothing
of queues.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from monarq import private_files
from monarq.errors import InternalError, MonarqError, StoreUnavailableError
from monarq.store.sqlite import migrations
from monarq.store.sqlite.thread import WorkThread

T = TypeVar("T")

BUSY_SECONDS = 10.0
_OLDEST_SQLITE = (3, 37, 0)
_COARSE_NS = 100_000_000

log = logging.getLogger(__name__)

# What Python raises for a number or text that SQLite cannot take.
_UNSTORABLE = (OverflowError, UnicodeError)
# Errors of the file or the disk. Any other is a mistake of ours.
_CAUSES = {
    sqlite3.SQLITE_BUSY: "other processes kept the file locked for too long",
    sqlite3.SQLITE_LOCKED: "other processes kept the file locked for too long",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk reported an error",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_READONLY: "the file cannot be written",
    sqlite3.SQLITE_PERM: "the file may not be accessed",
    sqlite3.SQLITE_NOMEM: "there is not enough memory",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore it from a backup",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite database",
}


class Connection:
    """Made by `open`, on the loop that uses it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._thread = WorkThread("monarq-sqlite")
        self._closed = False
        # SQLite follows a symbolic link, and puts -wal and -shm beside the file that it leads to.
        self._named = Path(path).absolute()
        self._file = Path(os.path.realpath(path))
        self._files = [Path(f"{self._file}{ending}") for ending in ("", "-wal")]
        self._identities: list[tuple[int, int] | None] = []
        self._seen_version = 0
        self._seen_stamp: list[tuple[int, int, int]] = []
        self.db: sqlite3.Connection

    @classmethod
    async def open(cls, path: str) -> Connection:
        connection = cls(path)
        try:
            await connection.run(connection._open)
        except BaseException:
            connection._thread.stop()
            raise
        return connection

    async def run(self, work: Callable[[], T]) -> T:
        """Run on the connection's thread. Errors of the file become `StoreUnavailableError`."""
        if self._closed:
            raise StoreUnavailableError(f"the store {self.path} is closed")
        return await self._thread.run(lambda: self.guarded(work))

    async def close(self) -> None:
        if self._closed:
            return
        closing = self._thread.run(self._close)
        self._closed = True
        self._thread.stop()
        await closing

    def may_have_changed(self) -> bool:
        """Whether the files look touched since this was last asked. Costs next to nothing, on any
        thread; what was touched a moment ago always does, as clocks of files are coarse."""
        if self.path == ":memory:":
            return False
        stamp, newest = [], 0
        for path in self._files:
            try:
                found = path.stat()
            except FileNotFoundError:
                continue
            stamp.append((found.st_ino, found.st_size, found.st_mtime_ns))
            newest = max(newest, found.st_mtime_ns)
        is_same, self._seen_stamp = stamp == self._seen_stamp, stamp
        return not is_same or time.time_ns() - newest < _COARSE_NS

    def changed(self) -> bool:
        """Whether another connection has committed since this was last asked."""
        version = self._data_version()
        was, self._seen_version = self._seen_version, version
        return version != was

    def begin(self) -> None:
        # Immediate: what a transaction reads is what it decides on, so nobody may write between.
        self.patiently(lambda: self.db.execute("begin immediate"))

    def patiently(self, work: Callable[[], T]) -> T:
        """SQLite waits for a lock, but not for another process that opens the file first or closes
        it last, and so has it for itself for a moment: then `work` is done again."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return work()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def guarded(self, work: Callable[[], T]) -> T:
        """Run on this thread. Errors of the file become `StoreUnavailableError`; others of SQLite
        are logged and become `InternalError`."""
        if self._identities and self._identify() != self._identities:
            # SQLite would go on with the files that nobody can find any more.
            raise StoreUnavailableError(
                f"the store {self.path} is not available: its files were moved, deleted or "
                "replaced while it was open. Put them back, or restart Monarq with other ones"
            )
        try:
            return work()
        except (sqlite3.Error, *_UNSTORABLE) as error:
            translated = self._translated(error)
            if translated is None:
                log.error("SQLite failed at a call", exc_info=error)
                raise InternalError(
                    f"the store {self.path} failed at this call ({type(error).__name__}): "
                    "its log says why"
                ) from error
            raise translated from error

    def commit(self) -> None:
        self.db.execute("commit")

    def rollback(self) -> None:
        # SQLite has already rolled back by itself after some errors, a full disk for one.
        if self.db.in_transaction:
            self.db.execute("rollback")

    def _translated(self, error: Exception) -> MonarqError | None:
        code = getattr(error, "sqlite_errorcode", None)
        cause = _CAUSES.get(code & 0xFF) if code is not None else None
        if cause is None:
            return None
        return StoreUnavailableError(f"the store {self.path} is not available: {cause} ({error})")

    def _open(self) -> None:
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            oldest = ".".join(map(str, _OLDEST_SQLITE))
            raise StoreUnavailableError(
                f"SQLite {sqlite3.sqlite_version} is too old: Monarq needs {oldest} or newer"
            )
        if self.path != ":memory:":
            self._make_directory()
            self._make_private()
        self.db = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, cached_statements=512
        )
        try:
            self._set_up()
        except BaseException:
            self.db.close()
            raise
        if self.path != ":memory:":
            self._identities = self._identify()

    def _identify(self) -> list[tuple[int, int] | None]:
        """Which files are there by the names of ours."""
        found: list[tuple[int, int] | None] = []
        for path in (self._named, *self._files):
            try:
                status = path.stat()
            except OSError:
                found.append(None)
            else:
                found.append((status.st_dev, status.st_ino))
        return found

    def _make_directory(self) -> None:
        try:
            private_files.make_directory(Path(self.path).parent)
        except OSError as error:
            raise StoreUnavailableError(
                f"the store {self.path} is not available: its directory cannot be made ({error})"
            ) from error

    def _make_private(self) -> None:
        """Make the file before SQLite does, with mode 0600; SQLite gives -wal and -shm the mode
        of the database. If that fails, SQLite's own attempt says why."""
        with contextlib.suppress(OSError):
            private_files.create_file(self._file)
        for ending in ("", "-wal", "-shm"):
            private_files.restrict(f"{self._file}{ending}")

    def _set_up(self) -> None:
        self._check()
        # Must come before the file has its first page; later it does nothing.
        self.db.execute("pragma page_size = 8192")
        self._switch_to_wal()
        self.db.execute("pragma synchronous = full")
        self.db.execute("pragma wal_autocheckpoint = 2000")
        self.db.execute(f"pragma journal_size_limit = {64 << 20}")
        self.db.execute(f"pragma cache_size = -{16 << 10}")
        self.db.execute("pragma temp_store = memory")
        self.begin()
        try:
            migrations.migrate(self.db)
            self.commit()
        except BaseException:
            self.rollback()
            raise
        self._seen_version = self._data_version()

    def _check(self) -> None:
        # In a transaction: another process may be making the tables right now.
        def look() -> None:
            self.db.execute("begin")
            try:
                migrations.check(self.db)
            finally:
                self.rollback()

        self.patiently(look)

    def _switch_to_wal(self) -> None:
        [mode] = self.patiently(lambda: self.db.execute("pragma journal_mode = wal").fetchone())
        if mode not in ("wal", "memory"):
            raise StoreUnavailableError(
                f"the store {self.path} is not available: its file system cannot share a "
                "write-ahead log, as those on a network mostly cannot"
            )

    def _data_version(self) -> int:
        row: tuple[int] = self.db.execute("pragma data_version").fetchone()
        return row[0]

    def _close(self) -> None:
        self.db.close()
