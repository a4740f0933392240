"""Ends a worker's commands when the worker is gone.

A worker that is killed with SIGKILL cannot end the command it runs, and its job will be given to
another worker when the lease is over: then the command would run twice at once. So every worker
starts a guard, a process in a session of its own that is told of each process group and reads a
pipe whose other end only the worker holds. When the pipe closes, the guard kills what is left.

The guard imports nothing of Monarq, so that it starts at once and stays small.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys


class Guard:
    """The worker's side. `watch` a process group when it starts, `forget` it when it is over."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def watch(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """Kills what is still watched, and returns when that is done."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        # Lines are far shorter than a pipe's atomic size, so they arrive whole.
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), line.encode())


def _guard() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    _guard()
