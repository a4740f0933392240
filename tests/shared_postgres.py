"""The PostgreSQL servers that all tests of one run share, whatever process they run in.

The process that controls the run makes a `TestRun`: a directory, and a lock on it that the
process holds as long as it lives. The first test that wants a server starts a keeper for it, a
process of its own that starts the server and then waits for that lock. However the run ends,
by its last test, Ctrl-C or SIGKILL, the lock becomes free, and the keeper stops the server and
deletes its data.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path

if __package__ in (None, ""):  # run as a script, by `_start_keeper`
    sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.postgres_server import (
    NEWEST,
    OLDEST,
    STOP_TIMEOUT_SECONDS,
    PostgresServer,
    delete_data,
    scratch,
)

#: A server of yours to test on, instead of the bundled ones.
GIVEN_DSN = os.environ.get("MONARQ_TEST_POSTGRES")

BUNDLED = {"postgres-oldest": OLDEST, "postgres-newest": NEWEST}

#: The servers that this run tests on, oldest first; for `pytest.mark.parametrize`.
POSTGRES_NAMES: tuple[str, ...] = ("postgres-given",) if GIVEN_DSN else tuple(BUNDLED)


class TestRun:
    """What the controlling process holds from the start of the run to its end."""

    __test__ = False

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="monarq-", dir=scratch()))
        self.directory.chmod(0o711)  # the account that runs PostgreSQL must get through
        self._lock = _lock_path(self.directory).open("w")
        # A lock of the process (not of the open file), so that no forked child keeps it.
        fcntl.lockf(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """End the run: returns when its servers are gone, and their data too."""
        self._lock.close()
        deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
        while _found(self.directory, "*.dsn") and time.monotonic() < deadline:
            time.sleep(0.01)
        _delete_run(self.directory)


class SharedServers(Mapping[str, str]):
    """The DSN of each server by its name in `POSTGRES_NAMES`. Asking for one starts it."""

    def __init__(self, run_directory: Path) -> None:
        self._run_directory = run_directory

    def __getitem__(self, name: str) -> str:
        if name not in POSTGRES_NAMES:
            raise KeyError(f"{name!r} is not one of {POSTGRES_NAMES}")
        return GIVEN_DSN or _shared_dsn(self._run_directory, BUNDLED[name])

    def __iter__(self) -> Iterator[str]:
        return iter(POSTGRES_NAMES)

    def __len__(self) -> int:
        return len(POSTGRES_NAMES)


def _shared_dsn(run_directory: Path, version: int) -> str:
    """The DSN of the run's server of that version, which the first caller starts."""
    dsn = _dsn_path(run_directory, version)
    if not dsn.exists():
        with (run_directory / f"{version}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not dsn.exists():
                _start_keeper(run_directory, version)
    return dsn.read_text()


def _start_keeper(run_directory: Path, version: int) -> None:
    started = subprocess.run(
        [sys.executable, __file__, str(run_directory), str(version)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if started.returncode != 0:
        raise RuntimeError(f"PostgreSQL {version} did not start:\n{started.stderr}")


def _become_keeper(run_directory: Path, version: int) -> int:
    """Fork: the child keeps the server, the parent returns once it is up, or has failed."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.close(read_end)
        _keep(run_directory, version, ready=write_end)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        failure = answer.read()
    sys.stderr.write(failure)
    return 1 if failure else 0


def _keep(run_directory: Path, version: int, ready: int) -> None:
    os.setsid()
    for stream in (sys.stdout, sys.stderr):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    dsn = _dsn_path(run_directory, version)
    try:
        with PostgresServer(version, parent=run_directory) as server:
            unfinished = dsn.with_suffix(".new")
            unfinished.write_text(server.dsn)
            unfinished.rename(dsn)
            os.close(ready)
            with _lock_path(run_directory).open() as lock:
                fcntl.lockf(lock, fcntl.LOCK_SH)
    except Exception:  # noqa: BLE001 (the parent reports it, whatever it is)
        with contextlib.suppress(OSError):
            os.write(ready, traceback.format_exc().encode())
    finally:
        dsn.unlink(missing_ok=True)
        if _has_ended(run_directory) and not _found(run_directory, "*.dsn"):
            _delete_run(run_directory)
        os._exit(0)


def _delete_run(run_directory: Path) -> None:
    """Delete what is left, with the private servers of test processes that were killed."""
    for data in _found(run_directory, "*/data"):
        delete_data(data.parent)
    shutil.rmtree(run_directory, ignore_errors=True)


def _found(run_directory: Path, pattern: str) -> list[Path]:
    """What matches. Nothing once the directory is gone: the run and its keepers end at the same
    time, and each deletes what it still finds, so it may vanish while it is being read."""
    try:
        return list(run_directory.glob(pattern))
    except FileNotFoundError:
        return []


def _has_ended(run_directory: Path) -> bool:
    try:
        with _lock_path(run_directory).open() as lock:
            fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        pass
    return True


def _lock_path(run_directory: Path) -> Path:
    return run_directory / "run.lock"


def _dsn_path(run_directory: Path, version: int) -> Path:
    return run_directory / f"{version}.dsn"


if __name__ == "__main__":
    sys.exit(_become_keeper(Path(sys.argv[1]), int(sys.argv[2])))
