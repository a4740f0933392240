"""Fresh stores and floors for a benchmark: a SQLite file, or a schema of a durable PostgreSQL."""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import asyncpg

from bench.floors import Floors, PostgresFloors, SqliteFloors
from monarq.store import Store, open_store
from tests.postgres_server import PostgresServer

#: Enough for the data of a run, so that neither checkpoints nor reads are what is measured.
POSTGRES_SETTINGS: Mapping[str, str | int] = MappingProxyType(
    {"shared_buffers": "512MB", "max_wal_size": "8GB"}
)


class Place(Protocol):
    """Where stores of one kind are made; each is empty, and gone after its use."""

    name: str

    def store(self) -> contextlib.AbstractAsyncContextManager[Store]: ...

    def floors(self) -> contextlib.AbstractAsyncContextManager[Floors]: ...

    async def settings(self) -> dict[str, Any]:
        """What decides how fast and how durable it is."""

    async def settle(self) -> None:
        """Let the work that earlier measurements left behind be done."""

    async def tidy(self) -> None:
        """Clean up behind what was changed, as the database does by itself from time to time."""


class SqlitePlace:
    name = "sqlite"

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        path = self._fresh()
        async with await open_store(f"sqlite:///{path}") as store:
            yield store
        _delete(path)

    @asynccontextmanager
    async def floors(self) -> AsyncIterator[Floors]:
        path = self._fresh()
        floors = SqliteFloors(path)
        yield floors
        await floors.close()
        _delete(path)

    async def settings(self) -> dict[str, Any]:
        return {"sqlite": sqlite3.sqlite_version, "journal_mode": "wal", "synchronous": "full"}

    async def settle(self) -> None:
        return

    async def tidy(self) -> None:
        return

    def _fresh(self) -> Path:
        return self._directory / f"{secrets.token_hex(6)}.db"


class PostgresPlace:
    name = "postgres"

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        async with self.schema() as schema, await open_store(self.dsn, schema=schema) as store:
            yield store

    @asynccontextmanager
    async def schema(self) -> AsyncIterator[str]:
        """The name of a schema that whoever uses it makes, and that is dropped afterwards."""
        schema = f"bench_{secrets.token_hex(6)}"
        yield schema
        await self._drop(schema)

    @asynccontextmanager
    async def floors(self) -> AsyncIterator[Floors]:
        schema = f"floors_{secrets.token_hex(6)}"
        floors = await PostgresFloors.make(self.dsn, schema)
        yield floors
        await floors.close()
        await self._drop(schema)

    async def settings(self) -> dict[str, Any]:
        names = ["server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_level"]
        async with self._connected() as connection:
            return {
                name: await connection.fetchval("select current_setting($1)", name)
                for name in (*names, *POSTGRES_SETTINGS)
            }

    async def settle(self) -> None:
        async with self._connected() as connection:
            await connection.execute("checkpoint")

    async def tidy(self) -> None:
        async with self._connected() as connection:
            await connection.execute("vacuum")

    async def _drop(self, schema: str) -> None:
        async with self._connected() as connection:
            await connection.execute("set client_min_messages = warning")
            await connection.execute(f"drop schema if exists {schema} cascade")

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[asyncpg.Connection]:
        connection = await asyncpg.connect(self.dsn)
        try:
            yield connection
        finally:
            await connection.close()


@contextmanager
def open_place(name: str) -> Iterator[Place]:
    if name == "sqlite":
        with tempfile.TemporaryDirectory(prefix="monarq-bench-") as directory:
            yield SqlitePlace(Path(directory))
    else:
        with PostgresServer(durable=True, settings=POSTGRES_SETTINGS) as server:
            yield PostgresPlace(server.dsn)


def _delete(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
