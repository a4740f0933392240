"""Runs a job's shell command.

In a process group of its own, with a clean environment, without input, for a limited time. What
it prints is handed on as it comes. When it ends, everything that it started ends. Knows nothing of
queues and leases.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Protocol, Self

from msgspec import Struct

from monarq.jobs.confinement import Confinement
from monarq.jobs.environment import INHERITED
from monarq.jobs.supervised import Over, SupervisedCommand, Supervisors

#: How long a command has between SIGTERM and SIGKILL.
GRACE_SECONDS = 5.0

#: How long a command that is killed may take to be gone. It takes longer if its supervisor is
#: frozen, or if it waits for a device.
_KILLED_SECONDS = 30.0

_UNCONFINED = Confinement()


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


class Command(Struct, frozen=True):
    """`line` is given to `/bin/sh -c` as it is: nothing is ever spliced into it."""

    line: str
    env: dict[str, str] = {}
    cwd: str | None = None
    timeout: float | None = None


class Ended(Struct, frozen=True, kw_only=True):
    """How a command ended. `error` says so in words; None if it exited with 0."""

    exit_code: int | None
    """A negative one is the signal that ended it. None if it could not be started, or if its
    supervisor was killed."""
    seconds: float
    error: str | None
    timed_out: bool = False
    stopped: bool = False
    cpu_seconds: float = 0.0


OnOutput = Callable[[Stream, bytes], None]


class Lease(Protocol):
    """What a command may run under."""

    def tell_end(self, told: Callable[[float], None] | None) -> None:
        """Tell `told` when the lease ends, by `time.monotonic`: now, and when it is renewed."""


async def run_command(
    command: Command,
    on_output: OnOutput,
    *,
    supervisors: Supervisors,
    lease: Lease | None = None,
    confinement: Confinement = _UNCONFINED,
    stop: asyncio.Event | None = None,
    environment: Mapping[str, str] = os.environ,
    grace_seconds: float = GRACE_SECONDS,
) -> Ended:
    """Run it to its end. Setting `stop` ends it early, as its time-out does: SIGTERM to the whole
    process group, after `grace_seconds` SIGKILL. When the command itself has ended, everything that
    it left running is killed: on Linux all its descendants, elsewhere its process group."""
    started = time.monotonic()
    try:
        async with (
            _Output(Stream.STDOUT, on_output) as out,
            _Output(Stream.STDERR, on_output) as err,
        ):
            user = confinement.user
            async with supervisors.start(
                command.line,
                environment=_environment(environment, confinement.environment, command.env),
                cwd=user.directory if command.cwd is None and user is not None else command.cwd,
                outputs=(out.write_end, err.write_end),
                confinement=confinement,
            ) as running:
                try:
                    if lease is not None:
                        lease.tell_end(running.end_at)
                    return await _attend(running, command, (out, err), stop, started, grace_seconds)
                finally:
                    if lease is not None:
                        lease.tell_end(None)
    except (OSError, ValueError) as error:
        return _not_started(started, str(error))


class _Output(asyncio.Protocol):
    """A stream of a command, handed on as it comes. Through a pipe of our own: asyncio's take a
    command for one that runs as long as anybody, a daemon that it left, holds them open."""

    def __init__(self, stream: Stream, on_output: OnOutput) -> None:
        self._stream = stream
        self._on_output = on_output
        self.ended = asyncio.Event()

    async def __aenter__(self) -> Self:
        read_end, self.write_end = os.pipe()
        pipe = os.fdopen(read_end, "rb", buffering=0)
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.connect_read_pipe(lambda: self, pipe)
        return self

    def give_away(self) -> None:
        """The command has the end to write to; with ours open, there would be no end to read."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    async def __aexit__(self, *_: object) -> None:
        self.give_away()
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._on_output(self._stream, data)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set()


async def _attend(
    running: SupervisedCommand,
    command: Command,
    outputs: tuple[_Output, _Output],
    stop: asyncio.Event | None,
    started: float,
    grace_seconds: float,
) -> Ended:
    for output in outputs:
        output.give_away()
    readers = [asyncio.ensure_future(output.ended.wait()) for output in outputs]
    ended: asyncio.Future[Over] = running.over
    stopping = asyncio.ensure_future(stop.wait()) if stop is not None else None
    try:
        waited_for: set[asyncio.Future[Any]] = {ended, *([stopping] if stopping else [])}
        await asyncio.wait(waited_for, timeout=command.timeout, return_when=asyncio.FIRST_COMPLETED)
        stopped = not ended.done() and stopping is not None and stopping.done()
        timed_out = not ended.done() and not stopped
        if not ended.done():
            running.send_signal(signal.SIGTERM)
            await asyncio.wait({ended}, timeout=grace_seconds)
            running.kill()
            await asyncio.wait({ended}, timeout=_KILLED_SECONDS)
        over = ended.result() if ended.done() else Over()
        seconds = _since(started)
        # A process that could not be killed may hold the pipes open.
        await asyncio.wait(readers, timeout=1.0)
    finally:
        for task in (*readers, *([stopping] if stopping is not None else [])):
            task.cancel()
    if over.failed is not None:
        if over.missing is not None and over.missing == command.cwd:
            return _not_started(started, f"the working directory {command.cwd} does not exist")
        return _not_started(started, over.failed)
    return Ended(
        exit_code=over.status,
        seconds=seconds,
        timed_out=timed_out,
        stopped=stopped,
        cpu_seconds=over.cpu_seconds,
        error=_in_words(over.status, command, timed_out=timed_out, stopped=stopped),
    )


def _environment(
    inherited: Mapping[str, str], confined: Mapping[str, str], named: Mapping[str, str]
) -> dict[str, str]:
    clean = {name: inherited[name] for name in INHERITED if name in inherited}
    return {**clean, **confined, **named}


def _since(started: float) -> float:
    return time.monotonic() - started


def _not_started(started: float, why: str) -> Ended:
    return Ended(exit_code=None, seconds=_since(started), error=f"cannot start: {why}")


def _in_words(code: int | None, command: Command, *, timed_out: bool, stopped: bool) -> str | None:
    if timed_out:
        return f"timed out after {command.timeout:g} s"
    if stopped:
        return "stopped with its worker"
    if code is None:
        return "the process that supervised it was killed"
    if code == 0:
        return None
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    if code == 127:
        return "exit code 127: command not found"
    if code == 126:
        return "exit code 126: command cannot be executed"
    return f"exit code {code}"
