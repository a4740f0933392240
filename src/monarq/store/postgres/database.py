"""Connections to PostgreSQL, and its errors in Monarq's words.

Knows nothing of queues. Every call has a time limit; no call leaves state in its session.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import lru_cache
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import asyncpg

from monarq.clock import Clock
from monarq.errors import InternalError, InvalidRequestError, StoreUnavailableError
from monarq.model import QueueKind
from monarq.store.postgres.connections import Connections
from monarq.store.postgres.migrations import migrate, render

log = logging.getLogger(__name__)

CALL_TIMEOUT = 30.0
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)
_ATTEMPTS = 5
LOST_A_DEADLOCK = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
T = TypeVar("T")
_UNAVAILABLE = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.PostgresSystemError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InternalClientError,
    asyncpg.InsufficientPrivilegeError,
)
_UNKNOWN = (asyncpg.PostgresError, OverflowError, UnicodeError)
_OTHER_SCHEMA = (
    asyncpg.InvalidSchemaNameError,
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
)
"""A restore is under way, or a newer Monarq has brought procedures of its own."""


def one_for_all(values: list[T]) -> list[T]:
    """An array of which a single element stands for as many as there are."""
    return values[:1] if values.count(values[0]) == len(values) else values


class RefusedError(Exception):
    """A procedure found something in the way of the batch; see `monarq.refuse`."""

    def __init__(self, reason: str, detail: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail
        self.kind: QueueKind | None = None
        """Which of the two procedures of a push refused."""


class _Connection(asyncpg.Connection):
    """Without the statement that asyncpg sends each time a connection is given back: no call
    leaves anything to reset, and it would cost every call a round trip."""

    def get_reset_query(self) -> str:
        return ""


class Database:
    def __init__(
        self,
        pool: asyncpg.Pool,
        clock: Clock,
        schema: str,
        *,
        prepares: bool = True,
        timeout_seconds: float | None = None,
    ) -> None:
        self._patience = 2 * (timeout_seconds or CALL_TIMEOUT)
        self._connections = Connections(pool, self._patience)
        self._prepares = prepares
        self.clock = clock
        self._render = lru_cache(maxsize=512)(lambda sql: render(sql, schema))

    @classmethod
    async def connect(
        cls,
        dsn: str,
        *,
        clock: Clock,
        schema: str,
        connections: int,
        timeout_seconds: float | None = None,
    ) -> Database:
        if not _SCHEMA_NAME.fullmatch(schema):
            raise InvalidRequestError(f"{schema!r} cannot be the name of a schema")
        dsn, prepares = _prepares(dsn)
        with _translated:
            pool = await asyncpg.create_pool(
                dsn,
                statement_cache_size=100 if prepares else 0,
                min_size=0,  # else asyncpg goes on connecting on its own while the server is away
                max_size=connections,
                command_timeout=timeout_seconds or CALL_TIMEOUT,
                timeout=10,
                connection_class=_Connection,
            )
            try:
                async with pool.acquire() as connection:
                    await migrate(connection, schema)
            except BaseException:
                pool.terminate()
                raise
        return cls(pool, clock, schema, prepares=prepares, timeout_seconds=timeout_seconds)

    async def close(self) -> None:
        """Wait for calls under way, but not for a server that no longer answers."""
        await self._connections.close()

    def now(self) -> int | None:
        """What procedures take as the time: None lets the server's clock decide."""
        return None if self.clock.shared else self.clock.now()

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        """Run one statement; if it lost a deadlock, again, a few times."""
        return await self._persistently(lambda: self._fetch_once(sql, *args))

    async def atomically(self, work: Callable[[Work], Awaitable[T]]) -> T:
        """Run several statements as one; if they lost a deadlock, again, a few times."""

        async def attempt() -> T:
            async with self.transaction() as unit:
                return await work(unit)

        return await self._persistently(attempt)

    async def _persistently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        for _ in range(_ATTEMPTS - 1):
            try:
                return await attempt()
            except LOST_A_DEADLOCK:
                continue
        try:
            return await attempt()
        except LOST_A_DEADLOCK as error:
            raise StoreUnavailableError(f"PostgreSQL could not finish: {error}") from error

    async def _fetch_once(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        if not self._prepares:
            async with self.transaction() as unit:
                return await unit.fetch(sql, *args)
        with _translated:
            async with self._connections.lent() as connection:
                rows: list[asyncpg.Record] = await connection.fetch(self._render(sql), *args)
            return rows

    async def fetchrow(self, sql: str, *args: Any) -> asyncpg.Record | None:
        rows = await self.fetch(sql, *args)
        return rows[0] if rows else None

    async def fetchval(self, sql: str, *args: Any) -> Any:
        row = await self.fetchrow(sql, *args)
        return row[0] if row else None

    async def snapshot(self) -> str:
        """Which transactions are over. Another one each time that somebody's writes have become
        visible, which the position in the log is not: a commit is there first, and can be seen
        only when it is on the disk."""
        return str(await self.fetchval("select pg_current_snapshot()::text"))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Work]:
        """Several statements that take effect together, or not at all."""
        with _translated:
            async with (
                asyncio.timeout(self._patience),
                self._connections.lent() as connection,
                connection.transaction(),
            ):
                yield Work(connection, self)

    def rendered(self, sql: str) -> str:
        return self._render(sql)


class Work:
    """The statements of one transaction; the same calls as `Database`."""

    def __init__(self, connection: Any, database: Database) -> None:
        self._connection = connection
        self._database = database

    def now(self) -> int | None:
        return self._database.now()

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        with _translated:
            rows: list[asyncpg.Record] = await self._connection.fetch(
                self._database.rendered(sql), *args
            )
            return rows

    async def fetchrow(self, sql: str, *args: Any) -> asyncpg.Record | None:
        rows = await self.fetch(sql, *args)
        return rows[0] if rows else None

    async def fetchval(self, sql: str, *args: Any) -> Any:
        row = await self.fetchrow(sql, *args)
        return row[0] if row else None


def _parts(dsn: str) -> SplitResult:
    try:
        parts = urlsplit(dsn)
        if "," not in parts.netloc:  # several hosts have ports of their own
            _ = parts.port
        if parts.query:
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True)
    except ValueError:
        # What the parser says may hold a part of the password.
        raise InvalidRequestError(
            "the address of PostgreSQL cannot be read: it is postgresql://user:password@host:port/"
            "database, with / # ? @ : of the password written as %2F %23 %3F %40 %3A"
        ) from None
    return parts


def _prepares(dsn: str) -> tuple[str, bool]:
    """Takes `prepared_statements=false` out of an address.

    Prepared statements save a round trip a call, but belong to a session: a pooler that gives
    every transaction another one has to know them, or they have to be off.
    """
    parts = _parts(dsn)
    options = parse_qsl(parts.query, keep_blank_values=True)
    choices = [value for name, value in options if name == "prepared_statements"]
    if not choices:
        return dsn, True
    if choices[-1] not in ("true", "false"):
        raise InvalidRequestError("prepared_statements in a PostgreSQL address is true or false")
    rest = [(name, value) for name, value in options if name != "prepared_statements"]
    return parts._replace(query=urlencode(rest)).geturl(), choices[-1] == "true"


class _Translation:
    """Turns errors of PostgreSQL and the network into Monarq's. Unknown ones are logged and become
    `InternalError`. A class rather than a generator, since every call passes here."""

    def __enter__(self) -> None:
        return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, asyncpg.PostgresError) and error.sqlstate == "MQ001":
            reason = str(error.args[0]).removeprefix("monarq: ")
            raise RefusedError(reason, json.loads(error.detail or "null")) from None
        if error is not None and (isinstance(error, _UNAVAILABLE) or _is_of_other_schema(error)):
            raise _unavailable(error) from error
        if isinstance(error, _UNKNOWN) and not isinstance(error, LOST_A_DEADLOCK):
            log.error("PostgreSQL failed at a call", exc_info=error)
            raise InternalError(
                f"PostgreSQL failed at this call ({type(error).__name__}): the log says why"
            ) from error


_translated = _Translation()


def _is_of_other_schema(error: BaseException) -> bool:
    """Also of a procedure that was replaced while a call was on its way to it. PostgreSQL has no
    code of its own for that, and never translates it."""
    if isinstance(error, asyncpg.InternalServerError):
        return str(error).startswith("cache lookup failed")
    return isinstance(error, _OTHER_SCHEMA)


def _unavailable(error: BaseException) -> StoreUnavailableError:
    why = str(error) or type(error).__name__
    if isinstance(error, TimeoutError):
        why = "it did not answer in time (is it overloaded, or does somebody hold a lock?)"
    elif isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError):
        why = f"the connection broke ({why})"
    elif _is_of_other_schema(error):
        why = f"its schema is not this Monarq's: it was upgraded, or is being restored ({why})"
    return StoreUnavailableError(f"PostgreSQL cannot serve: {why}")
