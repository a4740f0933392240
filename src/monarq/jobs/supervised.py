"""The worker's side of `supervisor.py`: starts commands, and is told how they ended."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from monarq.jobs.confinement import Confinement
from monarq.jobs.environment import safe_environment

#: How many supervisors wait for the next command at most.
_KEPT = 64
_TRIES = 3

_PROGRAM = Path(__file__).with_name("supervisor.py")


class Over(Struct, frozen=True):
    """How a command ended: either `failed`, or all but that."""

    failed: str | None = None
    """Why it could not be started."""
    missing: str | None = None
    """The file that was not there, if that is why."""
    status: int | None = None
    """The exit code, or the negative number of a signal. None if its supervisor ended first."""
    is_lost: bool = False
    """Whether its supervisor ended first."""
    cpu_seconds: float = 0.0


class Supervisor(asyncio.Protocol):
    """One supervisor, which runs a command at a time."""

    def __init__(self, own_end: socket.socket) -> None:
        self._socket = own_end
        self._transport: asyncio.Transport | None = None
        self._answer = bytearray()
        #: Of the command that runs, and at first of the supervisor's own start.
        self._over: asyncio.Future[Over] | None = asyncio.get_running_loop().create_future()
        self.begun = self._over

    @property
    def is_free(self) -> bool:
        transport = self._transport
        return (
            self._over is None
            and transport is not None
            and not transport.is_closing()
            # What is written past the transport must not overtake what it holds.
            and not transport.get_write_buffer_size()
        )

    def run(self, request: bytes, outputs: tuple[int, int]) -> SupervisedCommand:
        assert self._transport is not None
        self._over = asyncio.get_running_loop().create_future()
        socket.send_fds(self._socket, [_header(b"R", request)], outputs)
        self._transport.write(request)
        return SupervisedCommand(self, self._over)

    def send(self, letter: bytes, body: bytes = b"") -> None:
        if self._over is not None and self._transport is not None:
            self._transport.write(_header(letter, body) + body)

    def end(self) -> None:
        """End it, and with it the command that it runs."""
        # At once: a transport closes when the loop runs next.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if data.endswith(b"\n"):
            answer = bytes(self._answer)
            self._answer.clear()
            self._tell(msgspec.json.decode(answer, type=Over))

    def connection_lost(self, error: Exception | None) -> None:
        self._tell(Over(is_lost=True))

    def _tell(self, over: Over) -> None:
        future, self._over = self._over, None
        if future is not None and not future.done():
            future.set_result(over)


class SupervisedCommand:
    """A command that runs. `over` is set when it and all that it started have ended."""

    def __init__(self, supervisor: Supervisor, over: asyncio.Future[Over]) -> None:
        self._supervisor = supervisor
        self.over = over

    def end_at(self, until: float) -> None:
        """Have the command killed at this time of `time.monotonic`, even if this process is frozen
        by then."""
        self._supervisor.send(b"U", str(until).encode())

    def send_signal(self, number: signal.Signals) -> None:
        """Signal the command's process group."""
        self._supervisor.send(b"S", str(int(number)).encode())

    def kill(self) -> None:
        """Kill the command and all that it started."""
        self._supervisor.send(b"K")


class Supervisors:
    """Starts commands. One process of the system, the starter, is itself started with the first; it
    starts a supervisor for each command that runs at the same time."""

    def __init__(self) -> None:
        self._starter: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._free: list[Supervisor] = []
        self._busy: set[Supervisor] = set()

    @asynccontextmanager
    async def start(
        self,
        line: str,
        *,
        environment: Mapping[str, str],
        cwd: str | None,
        outputs: tuple[int, int],
        confinement: Confinement,
    ) -> AsyncIterator[SupervisedCommand]:
        """Start a command whose output goes to the given pipes, and end it when the block ends.
        Raise `OSError` if the system has no room for it."""
        user = confinement.user
        request = msgspec.json.encode(
            {
                "line": _bytes(line),
                "env": {_bytes(name): _bytes(value) for name, value in environment.items()},
                "cwd": None if cwd is None else _bytes(cwd),
                "user": None if user is None else [user.uid, user.gid, user.groups],
                "limits": confinement.limits,
            }
        )
        supervisor = await self._find_free()
        self._busy.add(supervisor)
        try:
            yield supervisor.run(request, outputs)
        finally:
            self._busy.discard(supervisor)
            if supervisor.is_free and len(self._free) < _KEPT:
                self._free.append(supervisor)
            else:
                supervisor.end()

    def close(self) -> None:
        """Kill what still runs, and return when that is done."""
        for supervisor in (*self._free, *self._busy):
            supervisor.end()
        self._free.clear()
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._starter is not None:
            self._starter.wait()
            self._starter = None

    async def _find_free(self) -> Supervisor:
        while self._free:
            supervisor = self._free.pop()
            if supervisor.is_free:
                return supervisor
            supervisor.end()
        for _ in range(_TRIES):
            if self._starter is None or self._starter.poll() is not None:
                # Somebody has killed it. The supervisors that it started go on without it.
                self._run_starter()
            starter = self._starter
            supervisor = await self._start_supervisor()
            if not (await supervisor.begun).is_lost:
                return supervisor
            if self._starter is starter and starter is not None:
                starter.kill()
                starter.wait()
        raise OSError("the process that starts commands ends at once")

    async def _start_supervisor(self) -> Supervisor:
        assert self._control is not None
        ours, theirs = socket.socketpair()
        try:
            with theirs, suppress(BrokenPipeError, ConnectionResetError):
                socket.send_fds(self._control, [b"+"], [theirs.fileno()])
            _, supervisor = await asyncio.get_running_loop().create_connection(
                lambda: Supervisor(ours), sock=ours
            )
        except BaseException:
            ours.close()
            raise
        return supervisor

    def _run_starter(self) -> None:
        if self._control is not None:
            self._control.close()
        ours, theirs = socket.socketpair()
        with theirs:
            self._starter = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_PROGRAM), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=safe_environment(os.environ),
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )
        self._control = ours


def _header(letter: bytes, body: bytes) -> bytes:
    return letter + len(body).to_bytes(4, "big")


def _bytes(text: str) -> str:
    """What the system is given for a text, one character for each byte."""
    return os.fsencode(text).decode("latin-1")
