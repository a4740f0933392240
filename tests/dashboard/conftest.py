"""Fixtures for tests in a real browser against real brokers.

`seeded` is a broker with load (see `seeding`), one a module and kind of store; `fresh` is an empty
one of the test's own. `board` opens the seeded one, and the test fails if the browser complained
about anything: an error in the console, or a violation of the content security policy.

Nothing here is asynchronous: the browser's library runs a loop of its own in this thread.
"""

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.dashboard.browsing import MISSING, Board, boarding, find_chromium, running_browser
from tests.dashboard.seeding import Caller, calling, seed
from tests.postgres_server import fresh_database
from tests.server.serving import ServerProcess, sqlite_settings
from tests.shared_postgres import POSTGRES_NAMES

STORES = ("sqlite", POSTGRES_NAMES[-1])
BOUND = 60.0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One a module: while it is there, nothing else in this thread can run a loop."""
    if find_chromium() is None:
        pytest.skip(MISSING)
    with running_browser() as running:
        yield running


@contextlib.contextmanager
def _database(dsn: str) -> Iterator[str]:
    """A database of one's own. Made in another thread, since this one's loop is the browser's."""
    made: list[str] = []
    is_made, is_over = threading.Event(), threading.Event()

    async def keep() -> None:
        async with fresh_database(dsn) as fresh:
            made.append(fresh)
            is_made.set()
            await asyncio.to_thread(is_over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(keep()))
    thread.start()
    try:
        assert is_made.wait(BOUND), "no database"
        yield made[0]
    finally:
        is_over.set()
        thread.join(BOUND)


@contextlib.contextmanager
def store_settings(
    kind: str, directory: Path, servers: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    if kind == "sqlite":
        yield sqlite_settings(directory)
        return
    with _database(servers[kind]) as dsn:
        schema = f"test_{secrets.token_hex(6)}"
        yield {"store": dsn, "schema": schema, "data_dir": str(directory)}


@pytest.fixture(scope="module", params=STORES)
def seeded(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    postgres_servers: Mapping[str, str],
) -> Iterator[ServerProcess]:
    """A broker with load, for all tests of a module."""
    directory = tmp_path_factory.mktemp("seeded")
    with (
        store_settings(request.param, directory, postgres_servers) as settings,
        ServerProcess(settings) as server,
    ):
        with calling(server) as caller:
            seed(caller)
        yield server


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Starts empty brokers on SQLite; they end with the test."""
    with contextlib.ExitStack() as servers:

        def start(**settings: Any) -> ServerProcess:
            directory = tmp_path / secrets.token_hex(4)
            directory.mkdir()
            return servers.enter_context(ServerProcess(sqlite_settings(directory) | settings))

        yield start


@pytest.fixture
def board(browser: Browser, seeded: ServerProcess) -> Iterator[Board]:
    with boarding(browser, seeded) as opened:
        yield opened
        opened.check()


@pytest.fixture
def api(seeded: ServerProcess) -> Iterator[Caller]:
    """What the dashboard did is looked at without it."""
    with calling(seeded) as caller:
        yield caller
