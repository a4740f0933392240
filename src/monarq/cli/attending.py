"""Workers in the foreground: told what this command is told, and ended when it is gone."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

from monarq.cli.calling import say

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
    """Wait for the workers, hand on what this process is told to do, and say which of them failed:
    how is theirs, the exit code is this command's own."""
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
    ends = {worker_id: worker.wait() for worker_id, worker in workers.items()}
    # One that was told to end before it could listen has done so.
    fine = (0, -signal.SIGTERM, -signal.SIGINT) if told else (0,)
    failed = {worker_id: code for worker_id, code in ends.items() if code not in fine}
    for worker_id, code in failed.items():
        say(f"worker {worker_id} {_in_words(code)}")
    return 1 if failed else 0


def _in_words(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
