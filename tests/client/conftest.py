"""One client after the other: embedded on each store, and over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from monarq.client.async_client import AsyncClient
from monarq.config import Settings
from monarq.server.listening import close_all, open_listeners
from monarq.server.worker import Worker
from tests.kept_connections import KeptConnections
from tests.kept_schemas import empty_schema
from tests.shared_postgres import POSTGRES_NAMES

WAYS = ("memory", "sqlite", "postgres", "http")


@pytest.fixture(params=WAYS)
async def mq(
    request: pytest.FixtureRequest,
    postgres_servers: Mapping[str, str],
    tmp_path: Path,
    kept_connections: KeptConnections,
) -> AsyncIterator[AsyncClient]:
    if request.param == "memory":
        async with AsyncClient("memory:") as client:
            yield client
    elif request.param == "sqlite":
        async with AsyncClient(f"sqlite:///{tmp_path}/mq.db") as client:
            yield client
    elif request.param == "http":
        async with served(tmp_path) as url, AsyncClient(url) as client:
            yield client
    else:
        dsn = postgres_servers[POSTGRES_NAMES[-1]]
        async with empty_schema(dsn) as schema:
            client = AsyncClient(dsn, schema=schema)
            with kept_connections.used():
                await client.connect()
            try:
                yield client
            finally:
                await client.close()


@asynccontextmanager
async def served(directory: Path, **place: Any) -> AsyncIterator[str]:
    """The address of a server in this process, since starting another takes longer than a test.
    Its store is a file, unless `place` says otherwise."""
    place = {"store": f"sqlite:///{directory}/mq.db"} | place
    settings = Settings(data_dir=str(directory), **place)
    listeners = open_listeners("127.0.0.1", 0)
    ready = asyncio.Event()
    worker = Worker(settings, listeners, ready=ready.set)
    running = asyncio.create_task(worker.run())
    running.add_done_callback(lambda _: ready.set())
    try:
        await ready.wait()
        yield f"http://127.0.0.1:{listeners[0].getsockname()[1]}"
    finally:
        worker.stop()
        await running
        close_all(listeners)
