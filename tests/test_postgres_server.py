"""The servers that the tests run on: private ones obey, shared ones are shared and cleaned up."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import asyncpg
import psutil
import pytest

from tests import postgres_server
from tests.conftest import NewPostgresServer
from tests.postgres_server import (
    NEWEST,
    OLDEST,
    PostgresServer,
    PostgresServerError,
    fresh_database,
)
from tests.shared_postgres import BUNDLED, POSTGRES_NAMES

PROJECT = Path(__file__).parent.parent


async def fetch_value(dsn: str, query: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def execute(dsn: str, query: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(query)
    finally:
        await connection.close()


def wait_until(is_true: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.mark.parametrize("name", POSTGRES_NAMES)
async def test_a_shared_server_has_the_version_of_its_name(
    postgres_servers: Mapping[str, str], name: str
) -> None:
    version = await fetch_value(postgres_servers[name], "show server_version_num")
    assert int(str(version)) // 10_000 == BUNDLED.get(name, int(str(version)) // 10_000)
    assert postgres_servers[name] == postgres_servers[name]


async def test_a_fresh_database_is_empty_and_dropped_even_while_in_use(postgres_dsn: str) -> None:
    async with fresh_database(postgres_dsn) as dsn, fresh_database(postgres_dsn) as other:
        await execute(dsn, "create table things (id int)")
        assert await fetch_value(other, "select to_regclass('things')") is None
        name = await fetch_value(dsn, "select current_database()")
        in_use = await asyncpg.connect(dsn)
    query = f"select count(*) from pg_database where datname = '{name}'"
    assert await fetch_value(postgres_dsn, query) == 0
    in_use.terminate()


async def test_the_postgres_database_fixture_gives_a_database_of_its_own(
    postgres_database: str, postgres_dsn: str
) -> None:
    query = "select current_database()"
    assert await fetch_value(postgres_database, query) != await fetch_value(postgres_dsn, query)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
async def test_committed_data_survives_kill_and_restart(
    new_postgres_server: NewPostgresServer, version: int
) -> None:
    server = new_postgres_server(version, durable=True)
    await execute(server.dsn, "create table things as select 7 as id")
    before = server.dsn

    server.kill()
    with pytest.raises(OSError):
        await asyncpg.connect(server.dsn)
    server.start()
    assert "database system was not properly shut down" in server.log
    server.restart()

    assert server.dsn == before
    assert await fetch_value(server.dsn, "select id from things") == 7


async def test_kill_leaves_no_backend_running(new_postgres_server: NewPostgresServer) -> None:
    server = new_postgres_server()
    connection = await asyncpg.connect(server.dsn)
    backend = psutil.Process(await connection.fetchval("select pg_backend_pid()"))
    server.kill()
    assert not backend.is_running() or backend.status() == psutil.STATUS_ZOMBIE
    connection.terminate()


async def test_a_paused_server_answers_only_after_resume(
    new_postgres_server: NewPostgresServer,
) -> None:
    server = new_postgres_server()
    connection = await asyncpg.connect(server.dsn)
    server.pause()
    answer = asyncio.ensure_future(connection.fetchval("select 1"))
    done, _ = await asyncio.wait([answer], timeout=0.3)
    assert not done
    server.resume()
    assert await asyncio.wait_for(answer, timeout=20) == 1
    await connection.close()


async def test_a_paused_server_can_be_stopped(new_postgres_server: NewPostgresServer) -> None:
    server = new_postgres_server()
    server.pause()
    server.stop()
    assert not server.is_running


async def test_settings_and_durability_reach_the_server(
    new_postgres_server: NewPostgresServer,
) -> None:
    server = new_postgres_server(durable=True, settings={"work_mem": "7MB"})
    assert await fetch_value(server.dsn, "show fsync") == "on"
    assert await fetch_value(server.dsn, "show work_mem") == "7MB"
    assert int(str(await fetch_value(server.dsn, "show max_connections"))) >= 200


def test_a_server_that_cannot_start_says_why_and_leaves_nothing() -> None:
    server = PostgresServer(settings={"no_such_setting": "1"})
    with pytest.raises(PostgresServerError, match="no_such_setting"), server:
        pytest.fail("it started")
    assert not server.directory.exists()


@pytest.mark.slow
class TestARunOfItsOwn:
    """Runs pytest in a process of its own, with the fixtures of this project."""

    @pytest.fixture
    def scratch(self) -> Iterator[Path]:
        """Where the run makes its directories: tmp_path is too long a path for sockets."""
        with tempfile.TemporaryDirectory(prefix="run-", dir=postgres_server.scratch()) as path:
            Path(path).chmod(0o711)
            yield Path(path)

    def start(
        self, scratch: Path, code: str, *options: str, given_dsn: str | None = None
    ) -> subprocess.Popen[str]:
        module = scratch / "test_it.py"
        module.write_text(code)
        unset = ("PYTEST_", "MONARQ_")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(unset)}
        environment["TMPDIR"] = str(scratch)
        if given_dsn is not None:
            environment["MONARQ_TEST_POSTGRES"] = given_dsn
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "pytest", "-p", "tests.conftest", "--rootdir", scratch),
                *("-c", PROJECT / "pyproject.toml", "-p", "no:cacheprovider", *options, module),
            ],
            cwd=PROJECT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def finish(self, run: subprocess.Popen[str]) -> str:
        output, _ = run.communicate(timeout=120)
        return output

    def test_processes_share_one_server_which_is_gone_at_the_end(self, scratch: Path) -> None:
        code = """
import pathlib, pytest
@pytest.mark.parametrize("number", range(4))
def test_dsn(postgres_dsn, number, worker_id):
    with (pathlib.Path(__file__).parent / "seen").open("a") as seen:
        seen.write(f"{worker_id} {postgres_dsn}\\n")
    assert number != 3
"""
        run = self.start(scratch, code, "--numprocesses", "2", "--dist", "each")
        output = self.finish(run)
        assert "2 failed, 6 passed" in output
        seen = {tuple(line.split()) for line in (scratch / "seen").read_text().splitlines()}
        assert len({worker for worker, _ in seen}) == 2
        assert len({dsn for _, dsn in seen}) == 1
        assert self.leftovers(scratch) == []

    def test_a_run_that_asks_for_no_server_starts_none(self, scratch: Path) -> None:
        code = """
from pathlib import Path
def test_nothing_runs(postgres_servers):
    [directory] = Path(__file__).parent.glob("monarq-*")
    assert [path.name for path in directory.iterdir()] == ["run.lock"]
"""
        assert "1 passed" in self.finish(self.start(scratch, code))
        assert self.leftovers(scratch) == []

    def test_a_given_server_replaces_the_bundled_ones(self, scratch: Path) -> None:
        code = """
def test_dsn(postgres_servers, postgres_dsn):
    assert dict(postgres_servers) == {"postgres-given": "postgresql://given/here"}
    assert postgres_dsn == "postgresql://given/here"
"""
        run = self.start(scratch, code, given_dsn="postgresql://given/here")
        assert "1 passed" in self.finish(run)

    @pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
    def test_a_run_that_is_ended_leaves_nothing(self, scratch: Path, end: signal.Signals) -> None:
        code = """
import pathlib, time
def test_stays(postgres_dsn, new_postgres_server):
    new_postgres_server()
    (pathlib.Path(__file__).parent / "up").touch()
    time.sleep(600)
"""
        run = self.start(scratch, code)
        try:
            wait_until(lambda: (scratch / "up").exists() or run.poll() is not None, 60)
            assert run.poll() is None, self.finish(run)
            assert len(self.leftovers(scratch)) >= 3, "a directory and two servers"
            run.send_signal(end)
            self.finish(run)
            wait_until(lambda: self.leftovers(scratch) == [])
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)

    def leftovers(self, scratch: Path) -> list[str]:
        """Directories of runs, and processes that still work on one."""
        found = [str(path) for path in scratch.glob("monarq-*")]
        for process in psutil.process_iter(["cmdline"]):
            arguments = process.info["cmdline"] or []
            if any(argument.startswith(f"{scratch}/monarq-") for argument in arguments):
                found.append(" ".join(arguments))
        return found
