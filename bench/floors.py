"""What the store is compared with: the same bytes, written by the fastest plain means.

Two floors for each kind of store, one transaction a batch, as durable as the store itself.
`bulk` is a table with nothing on it; `rows` is one row a message with a unique index on
(partition, transaction id), as most queues on a database keep them. They check nothing, answer
nothing, and nobody could consume from them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, Self

import asyncpg

Row = tuple[int, str, int, bytes]
"""Partition, transaction id, time, payload."""

_COLUMNS = "partition_id, transaction_id, created_at, payload"


class Floors(Protocol):
    async def bulk(self, batch: Sequence[Row]) -> None: ...

    async def rows(self, batch: Sequence[Row]) -> None: ...

    async def close(self) -> None: ...


class SqliteFloors:
    """`executemany`, one commit a batch, in a file of its own."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = full")
        columns = "partition_id integer, transaction_id text, created_at integer, payload blob"
        self._db.execute(f"create table plain ({columns})")
        self._db.execute(f"create table messages ({columns})")
        self._db.execute("create unique index by_id on messages (partition_id, transaction_id)")

    async def bulk(self, batch: Sequence[Row]) -> None:
        self._insert("plain", batch)

    async def rows(self, batch: Sequence[Row]) -> None:
        self._insert("messages", batch)

    async def close(self) -> None:
        self._db.close()

    def _insert(self, table: str, batch: Sequence[Row]) -> None:
        self._db.execute("begin immediate")
        self._db.executemany(f"insert into {table} ({_COLUMNS}) values (?, ?, ?, ?)", batch)
        self._db.execute("commit")


class PostgresFloors:
    """COPY, and `insert … select from unnest`, over one connection."""

    def __init__(self, connection: asyncpg.Connection, schema: str) -> None:
        self._connection = connection
        self._schema = schema
        self._insert = (
            f"insert into {schema}.messages ({_COLUMNS}) "
            "select * from unnest($1::bigint[], $2::text[], $3::bigint[], $4::bytea[])"
        )

    @classmethod
    async def make(cls, dsn: str, schema: str) -> Self:
        connection = await asyncpg.connect(dsn)
        columns = (
            "partition_id bigint not null, transaction_id text not null, "
            "created_at bigint not null, payload bytea not null"
        )
        await connection.execute(
            f"create schema {schema}; "
            f"create table {schema}.plain ({columns}); "
            f"create table {schema}.messages ({columns}, unique (partition_id, transaction_id))"
        )
        return cls(connection, schema)

    async def bulk(self, batch: Sequence[Row]) -> None:
        await self._connection.copy_records_to_table(
            "plain", schema_name=self._schema, records=batch
        )

    async def rows(self, batch: Sequence[Row]) -> None:
        await self._connection.execute(self._insert, *zip(*batch, strict=True))

    async def close(self) -> None:
        await self._connection.close()
