"""Runs a job's shell command.

In a process group of its own, with a clean environment, without input, for a limited time. What
it prints is handed on as it comes. Knows nothing of queues and leases.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Protocol, Self

from msgspec import Struct

#: All that a command inherits; what else it needs, the job names.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")

#: How long a command has between SIGTERM and SIGKILL.
GRACE_SECONDS = 5.0

#: The command starts when the guard knows of it: if the worker dies before that, `read` meets
#: the end of the pipe and nothing is run.
_WHEN_TOLD = 'read -r go && exec /bin/sh -c "$1" </dev/null'


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
    """None if it could not be started. A negative one is the signal that ended it."""
    seconds: float
    error: str | None
    timed_out: bool = False
    stopped: bool = False


OnOutput = Callable[[Stream, bytes], None]


class Watch(Protocol):
    """Told of the process group of a command, and when that is over."""

    def watch(self, group: int) -> None: ...

    def forget(self, group: int) -> None: ...


async def run_command(
    command: Command,
    on_output: OnOutput,
    *,
    guard: Watch,
    stop: asyncio.Event | None = None,
    environment: Mapping[str, str] = os.environ,
    grace_seconds: float = GRACE_SECONDS,
) -> Ended:
    """Run it to its end. Setting `stop` ends it early, as its time-out does: SIGTERM to the whole
    process group, after `grace_seconds` SIGKILL. When the command itself has ended, whatever it
    left running in its group is killed: a job is over when it is over."""
    started = time.monotonic()
    try:
        async with (
            _Output(Stream.STDOUT, on_output) as out,
            _Output(Stream.STDERR, on_output) as err,
        ):
            process = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", _WHEN_TOLD, "sh", command.line),
                stdin=asyncio.subprocess.PIPE,
                stdout=out.write_end,
                stderr=err.write_end,
                env=_environment(environment, command.env),
                cwd=command.cwd,
                start_new_session=True,
            )
            guard.watch(process.pid)
            try:
                assert process.stdin is not None
                process.stdin.write(b"go\n")
                process.stdin.close()
                return await _attend(process, command, (out, err), stop, started, grace_seconds)
            finally:
                _kill_group(process.pid, signal.SIGKILL)
                guard.forget(process.pid)
    except (OSError, ValueError) as error:
        return Ended(exit_code=None, seconds=_since(started), error=_cannot_start(command, error))


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
    process: asyncio.subprocess.Process,
    command: Command,
    outputs: tuple[_Output, _Output],
    stop: asyncio.Event | None,
    started: float,
    grace_seconds: float,
) -> Ended:
    for output in outputs:
        output.give_away()
    readers = [asyncio.ensure_future(output.ended.wait()) for output in outputs]
    ended = asyncio.ensure_future(process.wait())
    stopping = asyncio.ensure_future(stop.wait()) if stop is not None else None
    try:
        waited_for = {ended, stopping} if stopping is not None else {ended}
        await asyncio.wait(waited_for, timeout=command.timeout, return_when=asyncio.FIRST_COMPLETED)
        stopped = not ended.done() and stopping is not None and stopping.done()
        timed_out = not ended.done() and not stopped
        if not ended.done():
            _kill_group(process.pid, signal.SIGTERM)
            await asyncio.wait({ended}, timeout=grace_seconds)
        _kill_group(process.pid, signal.SIGKILL)
        code = await ended
        seconds = _since(started)
        # A process that left the group may hold the pipes open: its output is not waited for.
        await asyncio.wait(readers, timeout=1.0)
    finally:
        for task in (*readers, ended, *([stopping] if stopping is not None else [])):
            task.cancel()
    return Ended(
        exit_code=code,
        seconds=seconds,
        timed_out=timed_out,
        stopped=stopped,
        error=_in_words(code, command, timed_out=timed_out, stopped=stopped),
    )


def _environment(inherited: Mapping[str, str], named: Mapping[str, str]) -> dict[str, str]:
    clean = {name: inherited[name] for name in INHERITED if name in inherited}
    return clean | dict(named)


def _kill_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _since(started: float) -> float:
    return time.monotonic() - started


def _cannot_start(command: Command, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError) and error.filename == command.cwd:
        return f"cannot start: the working directory {command.cwd} does not exist"
    return f"cannot start: {error}"


def _in_words(code: int, command: Command, *, timed_out: bool, stopped: bool) -> str | None:
    if timed_out:
        return f"timed out after {command.timeout:g} s"
    if stopped:
        return "stopped with its worker"
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
