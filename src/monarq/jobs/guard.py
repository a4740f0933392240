"""Ends a worker's commands when the worker is gone, or frozen for longer than their leases.

A worker that is killed with SIGKILL cannot end the command it runs, and its job will be given to
another worker when the lease is over: then the command would run twice at once. So every worker
starts a guard, a process in a session of its own that is told of each process group and reads a
pipe whose other end only the worker holds. When the pipe closes, the guard kills what is left. A
worker that is frozen cannot end anything either: of each group the guard knows the end of its
lease, which the worker moves with each renewal.

The guard imports nothing of Monarq, so that it starts at once and stays small.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import sys
import time


class Guard:
    """The worker's side. `watch` a process group when it starts and whenever its lease is renewed,
    `forget` it when it is over."""

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

    def watch(self, group: int, until: float = math.inf) -> None:
        """`until` is when it is killed, by `time.monotonic`, which all processes have alike."""
        self._tell(f"{group} {until}\n")

    def forget(self, group: int) -> None:
        self._tell(f"{group}\n")

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
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    ends: dict[int, float] = {}
    rest = b""
    while True:
        soonest = min(ends.values(), default=math.inf) - time.monotonic()
        wait = None if math.isinf(soonest) else max(soonest, 0.0)
        if select.select([sys.stdin], [], [], wait)[0]:
            told = os.read(sys.stdin.fileno(), 65_536)
            if not told:
                break
            *lines, rest = (rest + told).split(b"\n")
            for line in lines:
                number, _, until = line.partition(b" ")
                ends.pop(int(number), None)
                if until:
                    ends[int(number)] = float(until)
        now = time.monotonic()
        for group in [group for group, end in ends.items() if end <= now]:
            del ends[group]
            _kill(group)
    for group in ends:
        _kill(group)


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    _guard()
