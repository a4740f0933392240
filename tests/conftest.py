"""Fixtures for all tests: real PostgreSQL servers, started when the first test asks for one.

A test that wants a database of its own on the newest server:

    async def test_something(postgres_database: str) -> None:
        connection = await asyncpg.connect(postgres_database)

A test that must hold on each server, here with a database of its own on each:

    from tests.postgres_server import fresh_database
    from tests.shared_postgres import POSTGRES_NAMES

    @pytest.fixture(params=["sqlite", "memory", *POSTGRES_NAMES])
    async def store(request, postgres_servers, tmp_path):
        if request.param in POSTGRES_NAMES:
            async with fresh_database(postgres_servers[request.param]) as dsn:
                ...

`POSTGRES_NAMES` is `("postgres-oldest", "postgres-newest")`, or `("postgres-given",)` when
MONARQ_TEST_POSTGRES names a server. `postgres_servers` only starts what it is asked for, so that
a run of the SQLite tests alone starts nothing.

A test that stops, kills or pauses its server makes a private one:

    def test_something(new_postgres_server: NewPostgresServer) -> None:
        server = new_postgres_server(OLDEST)
        server.kill()
"""

import asyncio
import atexit
import gc
import os
import signal
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings

from tests.kept_connections import KeptConnections
from tests.postgres_server import PostgresServer, fresh_database
from tests.shared_postgres import POSTGRES_NAMES, SharedServers, TestRun

pytest_plugins = ["tests.long_first", "tests.nothing_skipped", "tests.tiers"]

#: Takes what `PostgresServer` takes, and gives it started.
NewPostgresServer = Callable[..., PostgresServer]

_TEST_RUN = pytest.StashKey[TestRun]()
_RUN_DIRECTORY = pytest.StashKey[Path]()

# How long an example takes says something of the machine's load, nothing of the code.
settings.register_profile(
    "monarq", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("monarq")


def pytest_configure(config: pytest.Config) -> None:
    # A shell has what it starts in the background ignore the first two, and nohup the third. Every
    # command that a test starts and signals would ignore them, too; it does not inherit a handler.
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, lambda number, frame: None),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    worker = getattr(config, "workerinput", None)
    if worker is None:
        config.stash[_TEST_RUN] = TestRun()
        config.stash[_RUN_DIRECTORY] = config.stash[_TEST_RUN].directory
    else:
        config.stash[_RUN_DIRECTORY] = Path(worker["run_directory"])
    # The user's own data stays out of it: the embedded store, and the token for local brokers.
    os.environ["XDG_DATA_HOME"] = str(config.stash[_RUN_DIRECTORY] / "user-data")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays until the end: neither now nor later is it looked at for garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        # Libraries in C++ complain of objects that are never freed.
        atexit.register(gc.unfreeze)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a new xdist worker where the run's servers are."""
    node.workerinput["run_directory"] = str(node.config.stash[_RUN_DIRECTORY])


def pytest_unconfigure(config: pytest.Config) -> None:
    test_run = config.stash.get(_TEST_RUN, None)
    if test_run is not None:
        test_run.close()


@pytest.fixture(scope="session")
def run_directory(pytestconfig: pytest.Config) -> Path:
    """A directory that all processes of this run share; gone when it ends."""
    return pytestconfig.stash[_RUN_DIRECTORY]


@pytest.fixture(scope="session")
def postgres_servers(run_directory: Path) -> Mapping[str, str]:
    """The DSN of each server of the run by name; asking for one starts it."""
    return SharedServers(run_directory)


@pytest.fixture(scope="session")
def postgres_dsn(postgres_servers: Mapping[str, str]) -> str:
    """The superuser's DSN of the newest server, which all tests of the run share."""
    return postgres_servers[POSTGRES_NAMES[-1]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kept_connections() -> AsyncIterator[KeptConnections]:
    """Connections to PostgreSQL for the stores of all tests of a module."""
    kept = KeptConnections()
    yield kept
    await kept.close()


@pytest.fixture(autouse=True)
def no_task_outlives_its_test(request: pytest.FixtureRequest) -> None:
    """The tests of a module share an event loop. Others may have none: a browser has its own."""
    if request.node.get_closest_marker("asyncio") is not None:
        request.getfixturevalue("cancel_tasks")


@pytest.fixture
async def cancel_tasks() -> AsyncIterator[None]:
    """Cancel what the test has started and left running."""
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


@pytest.fixture
async def postgres_database(postgres_dsn: str) -> AsyncIterator[str]:
    """The DSN of an empty database on the newest server, for this test alone."""
    async with fresh_database(postgres_dsn) as dsn:
        yield dsn


@pytest.fixture
def new_postgres_server(pytestconfig: pytest.Config) -> Iterator[NewPostgresServer]:
    """Makes servers that belong to this test alone."""
    with ExitStack() as servers:
        yield lambda *args, **options: servers.enter_context(
            PostgresServer(*args, parent=pytestconfig.stash[_RUN_DIRECTORY], **options)
        )
