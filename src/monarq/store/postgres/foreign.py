"""The caller's own connection to PostgreSQL, whatever library it comes from.

asyncpg, psycopg (both kinds of connection), and SQLAlchemy's connections and sessions on top of
either. Only what happens inside the caller's transaction goes through it; nothing is committed.
"""

from __future__ import annotations

import abc
import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg

from monarq.clock import Clock
from monarq.errors import InvalidRequestError
from monarq.store.postgres.database import LOST_A_DEADLOCK, RefusedError, Work
from monarq.store.postgres.migrations import render

_SAVEPOINT = "monarq_work"
_REFUSED = "MQ001"
_DEADLOCKS = ("40P01", "40001")
_NO_TRANSACTION = (
    "the connection has no open transaction: begin one first, so that what is pushed or acked "
    "is committed or rolled back with it"
)


class Row(Sequence[Any]):
    """A row that is read by place or by name, as asyncpg's are."""

    __slots__ = ("_names", "_values")

    def __init__(self, names: dict[str, int], values: Sequence[Any]) -> None:
        self._names = names
        self._values = values

    def __getitem__(self, key: Any) -> Any:
        return self._values[self._names[key] if isinstance(key, str) else key]

    def __len__(self) -> int:
        return len(self._values)


class ForeignWork(Work, abc.ABC):
    """`Work` on a connection of the caller's."""

    def __init__(self, clock: Clock, schema: str) -> None:
        self._clock = clock
        self._schema = schema

    def now(self) -> int | None:
        return None if self._clock.shared else self._clock.now()

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        return await self._run(render(sql, self._schema), args)

    @asynccontextmanager
    async def part(self) -> AsyncIterator[ForeignWork]:
        """What happens inside is undone if it raises; the caller's transaction goes on."""
        await self._run(f"savepoint {_SAVEPOINT}", ())
        try:
            yield self
        except BaseException:
            await self._run(f"rollback to savepoint {_SAVEPOINT}", ())
            await self._run(f"release savepoint {_SAVEPOINT}", ())
            raise
        await self._run(f"release savepoint {_SAVEPOINT}", ())

    @abc.abstractmethod
    async def _run(self, sql: str, args: Sequence[Any]) -> list[Any]: ...


class _Asyncpg(ForeignWork):
    def __init__(self, connection: Any, clock: Clock, schema: str) -> None:
        super().__init__(clock, schema)
        if not connection.is_in_transaction():
            raise InvalidRequestError(_NO_TRANSACTION)
        self._own = connection

    async def _run(self, sql: str, args: Sequence[Any]) -> list[Any]:
        with _translated():
            rows: list[Any] = await self._own.fetch(sql, *args)
            return rows


class _Psycopg(ForeignWork):
    """Of both kinds; a blocking one is used from a thread."""

    def __init__(self, connection: Any, clock: Clock, schema: str) -> None:
        import psycopg

        super().__init__(clock, schema)
        idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if connection.autocommit and idle:
            raise InvalidRequestError(_NO_TRANSACTION)
        self._own = connection
        self._is_async = isinstance(connection, psycopg.AsyncConnection)

    async def _run(self, sql: str, args: Sequence[Any]) -> list[Any]:
        # A tuple would be a composite value; ours are all meant as arrays.
        arrays = [list(arg) if isinstance(arg, tuple) else arg for arg in args]
        with _translated():
            if self._is_async:
                return await self._run_async(sql, arrays)
            return await asyncio.to_thread(self._run_blocking, sql, arrays)

    async def _run_async(self, sql: str, args: Sequence[Any]) -> list[Any]:
        import psycopg

        async with psycopg.AsyncRawCursor(self._own) as cursor:
            await cursor.execute(sql, args)
            return _rows(cursor, await cursor.fetchall() if cursor.description else [])

    def _run_blocking(self, sql: str, args: Sequence[Any]) -> list[Any]:
        import psycopg

        with psycopg.RawCursor(self._own) as cursor:
            cursor.execute(sql, args)
            return _rows(cursor, cursor.fetchall() if cursor.description else [])


def _rows(cursor: Any, values: list[Any]) -> list[Any]:
    names = {column.name: place for place, column in enumerate(cursor.description or ())}
    return [Row(names, row) for row in values]


async def adopt(connection: Any, clock: Clock, schema: str) -> ForeignWork:
    """Work on this connection; `InvalidRequestError` if it is none that we know, or no
    transaction is open on it."""
    driver = await _driver_connection(connection)
    module = type(driver).__module__.partition(".")[0]
    if module == "asyncpg":
        return _Asyncpg(driver, clock, schema)
    if module == "psycopg":
        return _Psycopg(driver, clock, schema)
    raise InvalidRequestError(
        f"{type(connection).__module__}.{type(connection).__name__} is no connection that can be "
        "used: give one of asyncpg, psycopg 3 or SQLAlchemy (on either)"
    )


async def _driver_connection(connection: Any) -> Any:
    """What SQLAlchemy wraps; anything else as it is. SQLAlchemy begins a transaction with the
    first statement that goes through it, so one does."""
    if type(connection).__module__.partition(".")[0] != "sqlalchemy":
        return connection
    from sqlalchemy import Connection, text
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

    if isinstance(connection, AsyncSession):
        connection = await connection.connection()
    if isinstance(connection, AsyncConnection):
        await connection.execute(text("select 1"))
        return (await connection.get_raw_connection()).driver_connection
    if isinstance(connection, Session):
        connection = connection.connection()
    if isinstance(connection, Connection):
        await asyncio.to_thread(connection.execute, text("select 1"))
        return connection.connection.driver_connection
    return connection


@contextmanager
def _translated() -> Iterator[None]:
    """Refusals of our procedures, and lost deadlocks, as the rest of the store knows them."""
    try:
        yield
    except asyncpg.PostgresError as error:
        if error.sqlstate == _REFUSED:
            raise _refusal(str(error.args[0]), error.detail) from None
        raise
    except Exception as error:
        state = getattr(error, "sqlstate", None)
        if state == _REFUSED:
            diagnosis: Any = getattr(error, "diag", None)
            raise _refusal(diagnosis.message_primary, diagnosis.message_detail) from None
        if state in _DEADLOCKS:
            raise LOST_A_DEADLOCK[0](str(error)) from error
        raise


def _refusal(message: str, detail: str | None) -> RefusedError:
    return RefusedError(message.removeprefix("monarq: "), json.loads(detail or "null"))
