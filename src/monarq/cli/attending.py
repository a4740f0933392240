"""Workers in the foreground: told what this command is told, and ended when it is gone."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

#: A second one of these is meant for the jobs too.
_TYPED = signal.SIGINT
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Tie:
    """A pipe that closes when this process is gone, however it ended. Workers are given the end
    to read."""

    def __init__(self) -> None:
        self.end, self._ours = os.pipe()

    def close(self) -> None:
        os.close(self.end)
        os.close(self._ours)


def when_untied(end: int, stop: Callable[[], None]) -> None:
    """The worker's side: call `stop` when the process at the other end is gone."""
    import asyncio

    # What the worker starts may live longer, and must not be given it.
    os.set_inheritable(end, False)
    loop = asyncio.get_running_loop()

    def gone() -> None:
        loop.remove_reader(end)
        stop()

    loop.add_reader(end, gone)


def attend(workers: Mapping[str, subprocess.Popen[bytes]]) -> int:
    """Wait for the workers, and hand on what this process is told to do. Answers its exit code."""
    told: list[int] = []

    def hand_on(number: int, _: Any) -> None:
        told.append(number)
        sent = signal.SIGINT if told.count(_TYPED) > 1 else signal.SIGTERM
        for worker in workers.values():
            if worker.poll() is None:
                worker.send_signal(sent)

    for number in _ENDING:
        # `nohup` has it ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, hand_on)
    codes = [worker.wait() for worker in workers.values()]
    return max((abs(code) for code in codes), default=0)
