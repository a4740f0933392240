"""A driver of Spark in a process of its own, to be killed."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 300.0


class Driver:
    """Says `started` when its work begins. What it complains of goes to `log`."""

    def __init__(
        self, module: str, *arguments: str, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._path = log
        self._log = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=os.environ | dict(environment or {}),
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout

    @property
    def complaints(self) -> str:
        return self._path.read_text()[-3000:]

    def wait_until_started(self) -> None:
        assert self.said.readline() == b"started\n", self.complaints

    def wait_until(self, happened: Callable[[], bool]) -> None:
        """Or until it has ended by itself."""
        pause = threading.Event()
        for _ in range(int(WAIT_SECONDS * 50)):
            if happened() or self.process.poll() is not None:
                return
            pause.wait(0.02)
        raise AssertionError("it does not come that far")

    def executors(self) -> list[psutil.Process]:
        return [one for one in self._family() if "CoarseGrainedExecutorBackend" in _command(one)]

    def kill(self) -> None:
        """All of it at once, as when a machine loses its power."""
        family = self._family()
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(family, timeout=WAIT_SECONDS)
        self.process.wait(WAIT_SECONDS)

    def close(self) -> None:
        self.kill()
        self.said.close()
        self._log.close()

    def _family(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            own = psutil.Process(self.process.pid)
            return [own, *own.children(recursive=True)]
        return []


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@contextmanager
def driving(driver: Driver) -> Iterator[Driver]:
    try:
        yield driver
    finally:
        driver.close()
