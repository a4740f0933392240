"""Fixtures: a served broker on each store, and the published client in each version.

A test gets `queen`, a client of the broker, and `name`, which no other test uses:

    async def test_something(queen: Queen, name: str) -> None:
        await queen.queue(name).push({"data": 1})

and so runs three times: with both versions on PostgreSQL, and with the newest one on SQLite. What
only one version has takes it by the mark `of_version`:

    @of_version(NEWEST)
    async def test_something_new(queen: Queen, name: str) -> None:
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.interop.clients import VERSIONS, load_client, signal_handlers_kept
from tests.postgres_server import fresh_database
from tests.server.serving import ServerProcess, sqlite_settings
from tests.shared_postgres import POSTGRES_NAMES

#: What the client prints instead of raising.
SWALLOWED = re.compile(
    r"^(?:Pop failed|DLQ query failed|\[TRACE FAILED\]|Flush error).*", re.MULTILINE
)

STORES = ("sqlite", POSTGRES_NAMES[-1])

NewQueen = Callable[..., Any]
Serve = Callable[[str], Awaitable[ServerProcess]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def serve(
    postgres_servers: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Serve]:
    """Gives the broker on that store, which all tests of this process share."""
    async with AsyncExitStack() as stack:
        servers: dict[str, ServerProcess] = {}

        async def find(store: str) -> ServerProcess:
            if store not in servers:
                settings = sqlite_settings(tmp_path_factory.mktemp(store))
                if store in POSTGRES_NAMES:
                    database = fresh_database(postgres_servers[store])
                    settings["store"] = await stack.enter_async_context(database)
                servers[store] = stack.enter_context(ServerProcess(settings))
            return servers[store]

        yield find


@pytest_asyncio.fixture(loop_scope="session", params=STORES)
async def server(request: pytest.FixtureRequest, serve: Serve) -> ServerProcess:
    """A broker that other tests use too."""
    return await serve(request.param)


@pytest.fixture(params=VERSIONS)
def queen_mq(request: pytest.FixtureRequest, run_directory: Path) -> ModuleType:
    """The client's package."""
    return load_client(request.param, run_directory)


@pytest_asyncio.fixture
async def new_queen(
    queen_mq: ModuleType, server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[NewQueen]:
    """Makes clients, and closes them. They do not repeat what the server could not do: a test
    shall see it at once. A failure that they print instead of raising fails the test, unless it
    has read what was printed itself."""
    with signal_handlers_kept():
        async with AsyncExitStack() as clients:

            def make(**options: Any) -> Any:
                urls = options.pop("urls", [server.url])
                with signal_handlers_kept():
                    queen = queen_mq.Queen(
                        urls=urls, **{"timeout_millis": 20_000, "retry_attempts": 1} | options
                    )
                clients.push_async_callback(queen.close)
                return queen

            yield make
    assert not (found := SWALLOWED.search(capsys.readouterr().out)), found.group()


@pytest.fixture
def queen(new_queen: NewQueen) -> Any:
    return new_queen()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """For the test's queue and group."""
    return f"{request.node.originalname}-{uuid4().hex[:8]}"
