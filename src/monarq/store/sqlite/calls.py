"""How a call of the contract becomes one transaction on the connection's thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self, TypeVar

from monarq.clock import Clock
from monarq.crypto import Cipher
from monarq.errors import MonarqError
from monarq.operations import Operation
from monarq.store import queries
from monarq.store.contract import Outcome, Store
from monarq.store.sqlite.connection import Connection
from monarq.store.sqlite.handlers import handles
from monarq.store.sqlite.queries import SqliteQueries, finished
from monarq.store.sqlite.reading import Reader
from monarq.store.sqlite.session import Caches, Session

R = TypeVar("R")
T = TypeVar("T")
Check = Callable[[Sequence[R]], list[MonarqError | None]]
BatchWork = Callable[[Session, Sequence[R], Sequence[MonarqError | None]], list[Outcome[T]]]


class Calls(queries.SharedCalls, Store):
    """What the parts of the store share. They only say what runs."""

    concurrent = False

    def __init__(self, connection: Connection, clock: Clock, cipher: Cipher | None) -> None:
        self._connection = connection
        self._reader = Reader(connection)
        self._clock = clock
        self._cipher = cipher
        self._caches = Caches()

    @classmethod
    async def open(cls, path: str, *, clock: Clock, cipher: Cipher | None) -> Self:
        """Open the file, and where needed make or migrate it; `:memory:` is a store of its own."""
        return cls(await Connection.open(path), clock, cipher)

    async def close(self) -> None:
        await self._reader.close()
        await self._connection.close()

    async def ping(self) -> None:
        # Read to its end: a statement that is not keeps its view of the file, and with that the
        # next one from writing once somebody else has written.
        await self._read(
            lambda session: session.db.execute("select 1 from queues limit 1").fetchall()
        )

    async def changed(self) -> bool:
        if not self._connection.may_have_changed():
            return False
        return await self._connection.run(self._connection.changed)

    async def carry_out(self, request: Operation[Any], *, commands: bool) -> Any:
        own = handles.table.get(type(request))

        def work(session: Session) -> Any:
            session.commands = commands
            if own is not None:
                return own(session, request)
            shared = queries.handles.table[type(request)]
            return finished(shared(SqliteQueries(session), request))

        return await (self._write(work) if request.writes else self._read(work))

    async def _query(
        self, work: Callable[[queries.Queries], Awaitable[T]], *, writes: bool = False
    ) -> T:
        def run(session: Session) -> T:
            return finished(work(SqliteQueries(session)))

        return await (self._write(run) if writes else self._read(run))

    async def _batch(
        self, requests: Sequence[R], check: Check[R], work: BatchWork[R, T]
    ) -> list[Outcome[T]]:
        """A call that answers each request; the malformed ones never reach the store."""

        def run() -> list[Outcome[T]]:
            refused = check(requests)
            if all(error is not None for error in refused):
                return [error for error in refused if error is not None]
            return self._transact(lambda session: work(session, requests, refused))

        return await self._connection.run(run)

    async def _write(self, work: Callable[[Session], T]) -> T:
        return await self._connection.run(lambda: self._transact(work))

    async def _read(self, work: Callable[[Session], T]) -> T:
        return await self._connection.run(lambda: self._look(work))

    def _transact(self, work: Callable[[Session], T]) -> T:
        connection = self._connection
        connection.begin()
        try:
            # The time is taken under the lock, so that it is the order of commits too.
            session = Session(connection.db, self._clock.now(), self._cipher, self._caches)
            answer = work(session)
            session.finish()
            connection.commit()
        except BaseException:
            self._caches.clear()
            connection.rollback()
            raise
        return answer

    def _look(self, work: Callable[[Session], T]) -> T:
        """Reads that see one state of the store."""
        db = self._connection.db

        def look() -> T:
            db.execute("begin")
            try:
                return work(Session(db, self._clock.now(), self._cipher, self._caches))
            finally:
                self._connection.rollback()

        return self._connection.patiently(look)


def each(check: Callable[[R], object]) -> Check[R]:
    """Check the requests of a call one by one."""
    return lambda requests: [refusal(request, check) for request in requests]


def refusal(request: R, check: Callable[[R], object]) -> MonarqError | None:
    try:
        check(request)
    except MonarqError as error:
        return error
    return None
