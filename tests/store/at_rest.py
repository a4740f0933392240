"""What lies on the disk or in the tables of a store, and how to change it behind its back."""

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Any

import asyncpg
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from monarq.crypto import fingerprint
from tests.store.conftest import Place


async def bytes_at_rest(place: Place) -> bytes:
    """Everything that lies on the disk, or in the tables."""
    if not place.is_postgres:
        path = Path(place.address.removeprefix("sqlite:///"))
        files = await asyncio.to_thread(lambda: sorted(path.parent.glob(f"{path.name}*")))
        return b"".join([await asyncio.to_thread(file.read_bytes) for file in files])
    connection = await asyncpg.connect(place.address)
    try:
        tables = await connection.fetch(
            "select c.oid::regclass::text from pg_class c"
            " join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname = $1 and c.relkind = 'r'",
            place.schema,
        )
        parts = []
        for (table,) in tables:
            for (row,) in await connection.fetch(f"select t::text from {table} t"):
                parts.append(row.encode())
        return b"\n".join(parts)
    finally:
        await connection.close()


def holds(at_rest: bytes, text: bytes) -> bool:
    """As it is, or as the hex digits in which PostgreSQL shows bytes."""
    bare = text.strip(b'"')
    return bare in at_rest or bare.hex().encode() in at_rest


async def run_sql(place: Place, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """One statement as somebody with access to the database would run it, with `?` for values."""
    if place.is_postgres:
        for n in range(1, len(values) + 1):
            sql = sql.replace("?", f"${n}", 1)
        connection = await asyncpg.connect(
            place.address, server_settings={"search_path": f'"{place.schema}"'}
        )
        try:
            return [tuple(row) for row in await connection.fetch(sql, *values)]
        finally:
            await connection.close()
    path = place.address.removeprefix("sqlite:///")

    def run() -> list[tuple[Any, ...]]:
        db = sqlite3.connect(path, timeout=10)
        try:
            with db:
                return db.execute(sql, values).fetchall()
        finally:
            db.close()

    return await asyncio.to_thread(run)


async def swap(place: Place, table: str, column: str, first: str, second: str) -> None:
    """Exchange a column's values in two rows of a table, each named by a condition."""
    [(one,)] = await run_sql(place, f"select {column} from {table} where {first}")
    [(other,)] = await run_sql(place, f"select {column} from {table} where {second}")
    assert one != other
    await run_sql(place, f"update {table} set {column} = ? where {first}", other)
    await run_sql(place, f"update {table} set {column} = ? where {second}", one)


def sealed_without_place(key: bytes, payload: bytes) -> bytes:
    """As Monarq sealed payloads before it bound them to their place."""
    nonce = os.urandom(12)
    return b"\x01" + fingerprint(key) + nonce + AESGCM(key).encrypt(nonce, payload, None)
