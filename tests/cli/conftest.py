"""Runs the real command in a process of its own, with a home directory of its own."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.cli.invoking import Invoke
from tests.postgres_server import fresh_database
from tests.server.serving import ServerProcess, sqlite_settings
from tests.shared_postgres import POSTGRES_NAMES

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    """Nothing of ours in it but what the test says."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("MONARQ_")}
    return kept | {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_DATA_HOME": str(home / "data"),
        "COLUMNS": "200",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }


@pytest.fixture
def monarq(environment: dict[str, str]) -> Run:
    """`monarq("config", "show", MONARQ_PORT="1")`: the finished process."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "monarq", *arguments],
            env=environment | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def cli(environment: dict[str, str]) -> Invoke:
    """The command line in this process, on the embedded store of the test's own home."""
    return Invoke(environment)


@pytest.fixture
def server(tmp_path: Path, environment: dict[str, str]) -> Iterator[ServerProcess]:
    """A broker behind HTTP, on a SQLite file, of the user whose home the test has."""
    directory = tmp_path / "served"
    directory.mkdir()
    with ServerProcess(sqlite_settings(directory), environment=environment) as process:
        yield process


@pytest.fixture(params=["sqlite", "postgres", "http"])
async def anywhere(
    request: pytest.FixtureRequest,
    environment: dict[str, str],
    postgres_servers: Mapping[str, str],
) -> AsyncIterator[Invoke]:
    """The command line on each store, and over HTTP."""
    if request.param == "sqlite":
        yield Invoke(environment)
    elif request.param == "postgres":
        async with fresh_database(postgres_servers[POSTGRES_NAMES[-1]]) as dsn:
            yield Invoke(environment | {"MONARQ_STORE": dsn})
    else:
        server: ServerProcess = request.getfixturevalue("server")
        yield Invoke(environment | {"MONARQ_URL": server.url})
