"""One client after the other: embedded on each store, and over HTTP."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from monarq.client.async_client import AsyncClient
from tests.postgres_server import fresh_database
from tests.server.serving import ServerProcess
from tests.shared_postgres import POSTGRES_NAMES

WAYS = ("memory", "sqlite", "postgres", "http")


@pytest.fixture(params=WAYS)
async def mq(
    request: pytest.FixtureRequest, postgres_servers: Mapping[str, str], tmp_path: Path
) -> AsyncIterator[AsyncClient]:
    if request.param == "memory":
        async with AsyncClient("memory:") as client:
            yield client
    elif request.param == "sqlite":
        async with AsyncClient(f"sqlite:///{tmp_path}/mq.db") as client:
            yield client
    elif request.param == "http":
        settings = {"store": f"sqlite:///{tmp_path}/mq.db", "data_dir": str(tmp_path)}
        with ServerProcess(settings) as server:
            async with AsyncClient(server.url) as client:
                yield client
    else:
        async with (
            fresh_database(postgres_servers[POSTGRES_NAMES[-1]]) as dsn,
            AsyncClient(dsn) as client,
        ):
            yield client
