"""What the Spark benchmark reads: the same messages in both stores and in a plain table.

Knows nothing of Spark.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg

from bench.places import POSTGRES_SETTINGS
from monarq.errors import MonarqError
from monarq.model import Push, PushItem
from monarq.store import Store, open_store
from tests.postgres_server import PostgresServer

QUEUE = "orders"
PARTITIONS = 8
AT_ONCE = 1_000
ROWS_TABLE = "bench_rows"

_MAKE_ROWS = f"""
create table {ROWS_TABLE} (
    id bigint generated always as identity primary key, queue text not null,
    partition text not null, seq bigint not null, message_id text not null,
    transaction_id text not null, trace_id text, payload text not null, producer text,
    created_at timestamptz not null
)
"""


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """The DSN of a durable PostgreSQL on a port of this machine: JDBC knows no Unix sockets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {**POSTGRES_SETTINGS, "listen_addresses": "127.0.0.1", "port": port}
    with PostgresServer(durable=True, settings=settings):
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"


def jdbc_url(dsn: str, **options: str) -> str:
    address = dsn.partition("@")[2]
    query = "&".join(f"{name}={value}" for name, value in {"user": "postgres", **options}.items())
    return f"jdbc:postgresql://{address}?{query}"


def payload(number: int, size: int) -> bytes:
    head = b'{"order":%d,"customer":"c-%d","note":"' % (number, number % 997)
    return head + b"x" * max(size - len(head) - 2, 0) + b'"}'


async def fill(store: Store, count: int, size: int, *, own_ids: bool, queue: str = QUEUE) -> None:
    """Pushed as a broker under load does: about a thousand messages at once."""
    for start in range(0, count, AT_ONCE):
        partition = f"c-{start // AT_ONCE % PARTITIONS}"
        items = [
            PushItem(
                queue,
                payload(number, size),
                partition,
                transaction_id=f"b7d1f2c0-5a3e-4c69-9d10-{number:012d}" if own_ids else None,
            )
            for number in range(start, min(start + AT_ONCE, count))
        ]
        for answer in await store.push([Push(items)]):
            if isinstance(answer, MonarqError):
                raise answer


async def fill_partitions(store: Store, count: int, queue: str) -> None:
    """One message in each of very many."""
    for start in range(0, count, 5_000):
        items = [PushItem(queue, b"{}", f"p-{number}") for number in range(start, start + 5_000)]
        for answer in await store.push([Push(items)]):
            if isinstance(answer, MonarqError):
                raise answer


async def fill_stores(dsn: str, file: Path, count: int, size: int, *, own_ids: bool) -> None:
    for address in (dsn, f"sqlite:///{file}"):
        async with await open_store(address) as store:
            await fill(store, count, size, own_ids=own_ids)


async def make_rows(dsn: str) -> None:
    """The messages of the store once more, a row each, as other brokers keep them."""
    async with connected(dsn) as connection:
        await connection.execute(_MAKE_ROWS)
        await connection.execute(
            f"""
            insert into {ROWS_TABLE} (queue, partition, seq, message_id, transaction_id, trace_id,
                payload, producer, created_at)
            select queue, partition, seq, partition_id || '-' || seq, transaction_id, trace_id,
                payload, producer, created_at
            from monarq.messages where queue = $1""",
            QUEUE,
            timeout=3_600,
        )
        await connection.execute("vacuum analyze", timeout=3_600)
        await connection.execute("checkpoint", timeout=3_600)


@contextlib.asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()
