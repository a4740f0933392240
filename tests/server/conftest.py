"""Fixtures for tests that talk to a real server over a real socket.

A test that takes `server` runs once on each kind of store, with an empty one of its own:

    def test_something(server: ServerProcess) -> None:
        assert server.post("/api/v1/push", {...}).status == 201

`start_server(**settings)` starts a server (one more, or the only one) on that store:

    def test_two(start_server: StartServer) -> None:
        one, two = start_server(), start_server(batch_max=10)

A test for certain stores alone says
`@pytest.mark.parametrize("served_store", ["sqlite"], indirect=True)`.

Tests of the application alone take `api` or `memory_api`, which are in process.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.kept_schemas import empty_schema
from tests.server.application import api, memory_api
from tests.server.serving import ServerProcess
from tests.shared_postgres import POSTGRES_NAMES

__all__ = ["api", "memory_api"]

SERVED_STORES = ("sqlite", POSTGRES_NAMES[-1])


class StartServer(Protocol):
    def __call__(self, **settings: Any) -> ServerProcess: ...


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = any(
        marker.args[0] == "served_store"
        for marker in metafunc.definition.iter_markers("parametrize")
    )
    if "served_store" in metafunc.fixturenames and not chosen:
        metafunc.parametrize("served_store", SERVED_STORES, indirect=True)


@pytest.fixture
async def served_store(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_servers: Mapping[str, str]
) -> AsyncIterator[dict[str, Any]]:
    """The settings that name an empty store."""
    if request.param in POSTGRES_NAMES:
        dsn = postgres_servers[request.param]
        async with empty_schema(dsn) as schema:
            yield {"store": dsn, "schema": schema}
    else:
        yield {"store": f"sqlite:///{tmp_path / 'monarq.db'}"}


@pytest.fixture
def start_server(served_store: dict[str, Any], tmp_path: Path) -> Iterator[StartServer]:
    """Starts servers on the test's store; they end with the test."""
    with contextlib.ExitStack() as servers:

        def start(**settings: Any) -> ServerProcess:
            data = {"data_dir": str(tmp_path / "data")}
            return servers.enter_context(ServerProcess(data | served_store | settings))

        yield start


@pytest.fixture
def server(start_server: StartServer) -> ServerProcess:
    """A server on the test's store."""
    return start_server()
