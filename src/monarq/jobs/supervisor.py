"""The program that starts a worker's commands and ends each with everything that it started.

A worker runs this file once: the *starter*. It forks a *supervisor* for each socket that the worker
sends it. A supervisor runs one command after another, one at a time, and talks with the worker
through its socket:

    worker     -> supervisor   frames: a letter, the length in four bytes, a body
                               R  the request: JSON, with the pipes for both outputs
                               U  the lease ends at this time, by `time.monotonic`
                               S  send the command's process group this signal
                               K  kill the command now
    supervisor -> worker       a line of JSON: `{}` at the beginning; then for each command, when
                               everything is over, `{"failed": ...}` if it could not be started or
                               `{"status": ...}` if it has ended

The supervisor kills all that is left of a command when the command ends, when its lease is over
(the worker may be frozen), or when the socket closes (the worker is gone: its job will be given to
another worker, and would run twice at once). On Linux it is the subreaper of the command, so every
descendant is a descendant of the supervisor for as long as it lives, whatever session, group or
environment it gives itself. Elsewhere only the command's process group is killed. Frames other than
a request that arrive between two commands were meant for the one before, and are ignored.

If a job kills its own supervisor, the starter, a subreaper too, kills what that leaves behind.

It imports nothing of Monarq but `linux.py`, so that it starts at once and a fork stays small.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import math
import os
import resource
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

_HEADER_BYTES = 5
_OUTPUTS = 2
_LONGEST_PAUSE_SECONDS = 0.05
_UNKILLABLE_SECONDS = 5.0
#: Signals that Python, this program or the shell that started the worker ignores, and that a
#: command must not ignore.
_RESTORED = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGCHLD", "SIGPIPE", "SIGXFSZ")
    if hasattr(signal, name)
)


def _load_linux() -> Any:
    path = Path(__file__).absolute().with_name("linux.py")
    spec = importlib.util.spec_from_file_location("linux", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


linux = _load_linux()


# --- the starter ---------------------------------------------------------------------------


def start_commands(control: socket.socket) -> None:
    """Fork a supervisor for each byte that comes with a socket, until the worker is gone and all
    supervisors have ended."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    linux.hide_process()
    linux.adopt_orphans()
    wake = _wake_on_child()
    gc.disable()
    gc.freeze()
    supervisors: set[int] = set()
    is_open = True
    while is_open or supervisors:
        waited_for: list[Any] = [wake, control] if is_open else [wake]
        ready = select.select(waited_for, [], [], None if is_open else 1.0)[0]
        if control in ready:
            is_open = _start(control, wake, supervisors)
        if wake in ready or not is_open:
            _drain(wake)
            _reap(supervisors)


def _start(control: socket.socket, wake: int, supervisors: set[int]) -> bool:
    """Fork one supervisor. Return False if the worker is gone."""
    try:
        data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    except OSError:
        return False
    if not data:
        return False
    # None, if this process may not open more files: the worker meets the end of its socket.
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
        with contextlib.suppress(OSError):
            pid = os.fork()
            if pid == 0:
                _be_supervisor(control, wake, descriptor)
            supervisors.add(pid)
        os.close(descriptor)
    return True


def _reap(supervisors: set[int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        if pid not in supervisors or os.WIFSIGNALED(status):
            supervisors.discard(pid)
            _kill_adopted(supervisors)
        supervisors.discard(pid)


def _kill_adopted(supervisors: set[int]) -> None:
    """Kill what a killed supervisor left behind."""
    children = linux.all_children()
    for child in children.get(os.getpid(), []):
        if child not in supervisors:
            for pid in (child, *linux.descendants(child, children)):
                _kill(pid)


# --- a supervisor --------------------------------------------------------------------------


def _be_supervisor(control: socket.socket, wake: int, descriptor: int) -> NoReturn:
    try:
        control.close()
        os.close(wake)
        _Supervisor(socket.socket(fileno=descriptor)).run()
    except OSError:
        # The worker is gone.
        os._exit(1)
    finally:
        os._exit(0)


class _WorkerGoneError(Exception):
    """Nobody is at the other end of the socket."""


class _Supervisor:
    def __init__(self, worker: socket.socket) -> None:
        self._worker = worker
        self._null = os.open(os.devnull, os.O_RDONLY)
        linux.adopt_orphans()
        self._wake = _wake_on_child()
        self._until = math.inf
        self._pid = 0
        self._status: int | None = None
        self._cpu_seconds = 0.0

    def run(self) -> None:
        """Run commands until the worker is gone, or something cannot be killed."""
        with contextlib.suppress(_WorkerGoneError):
            is_clean = True
            self._answer({})
            while is_clean:
                letter, body, outputs = self._read_frame()
                if letter == b"R":
                    answer, is_clean = self._supervise(json.loads(body), outputs)
                    self._answer(answer)

    def _answer(self, answer: dict[str, Any]) -> None:
        self._worker.sendall(json.dumps(answer).encode() + b"\n")

    def _supervise(
        self, request: dict[str, Any], outputs: list[int]
    ) -> tuple[dict[str, Any], bool]:
        """Start the command and see it to its end. Return the answer, and whether nothing of the
        command is left."""
        self._until, self._status, self._cpu_seconds = math.inf, None, 0.0
        try:
            failure = self._start(request, outputs)
        finally:
            for output in outputs:
                os.close(output)
        if failure is not None:
            return failure, True
        try:
            self._attend()
        finally:
            is_clean = self._end_all()
        return {"status": self._status, "cpu_seconds": self._cpu_seconds}, is_clean

    def _attend(self) -> None:
        """Wait until the command ends, its lease is over, or the worker wants it killed."""
        while self._status is None:
            wait = self._until - time.monotonic()
            if wait <= 0:
                return
            waited_for: list[Any] = [self._wake, self._worker]
            ready = select.select(waited_for, [], [], None if math.isinf(wait) else wait)[0]
            if self._worker in ready:
                letter, body, _ = self._read_frame()
                if letter == b"U":
                    self._until = float(body)
                elif letter == b"S":
                    _kill_group(self._pid, int(body))
                elif letter == b"K":
                    return
            if self._wake in ready:
                _drain(self._wake)
                self._reap()

    def _read_frame(self) -> tuple[bytes, bytes, list[int]]:
        header, descriptors, _, _ = socket.recv_fds(self._worker, _HEADER_BYTES, _OUTPUTS)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        header += self._read_exactly(_HEADER_BYTES - len(header))
        body = self._read_exactly(int.from_bytes(header[1:], "big"))
        return header[:1], body, descriptors

    def _read_exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            more = self._worker.recv(size - len(found))
            if not more:
                raise _WorkerGoneError
            found += more
        return bytes(found)

    def _start(self, request: dict[str, Any], outputs: list[int]) -> dict[str, Any] | None:
        """Start the command. Return the answer if it cannot be started."""
        if len(outputs) < _OUTPUTS:
            return {"failed": "its supervisor may not open more files"}
        descriptors = (self._null, *outputs)
        try:
            if request["user"] is not None or request["limits"] or request["cwd"] is not None:
                return self._fork(request, descriptors)
            # Much cheaper than a fork, but without users, limits and directories.
            self._pid = os.posix_spawn(
                *_program(request),
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, descriptor, number)
                    for number, descriptor in enumerate(descriptors)
                ],
                setsid=True,
                setsigdef=_RESTORED,
            )
        except (OSError, ValueError) as error:
            return _failure(error)
        except NotImplementedError:
            return self._fork(request, descriptors)
        return None

    def _fork(self, request: dict[str, Any], descriptors: tuple[int, ...]) -> dict[str, Any] | None:
        failed, fails = os.pipe()
        # Closed by the `exec` that succeeds.
        with os.fdopen(failed, "rb") as pipe:
            try:
                self._pid = os.fork()
                if self._pid == 0:
                    try:
                        _become(request, descriptors)
                    except BaseException as error:  # noqa: BLE001 - this process must end here
                        os.write(fails, json.dumps(_failure(error)).encode())
                    finally:
                        os._exit(127)
            finally:
                os.close(fails)
            said = pipe.read()
        if not said:
            return None
        os.waitpid(self._pid, 0)
        failure: dict[str, Any] = json.loads(said)
        return failure

    def _reap(self) -> bool:
        """Collect children that have ended. Return whether any are left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self._pid:
                self._status = os.waitstatus_to_exitcode(status)
                self._cpu_seconds = usage.ru_utime + usage.ru_stime

    def _end_all(self) -> bool:
        """Kill everything that is left, again and again until there is nothing to wait for: what
        forks while it is killed leaves a child for the next round. Return False if something
        cannot be killed, such as a process of another user."""
        pause = 0.001
        started = time.monotonic()
        # On Linux a descendant is known as one; the number of a group may belong to another by now.
        if self._status is None or not linux.IS_LINUX:
            _kill_group(self._pid, signal.SIGKILL)
        while self._reap():
            for pid in linux.descendants(os.getpid(), linux.all_children()):
                _kill(pid)
            if self._status is not None and time.monotonic() - started > _UNKILLABLE_SECONDS:
                return False
            select.select([self._wake], [], [], pause)
            _drain(self._wake)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return True


def _become(request: dict[str, Any], descriptors: tuple[int, ...]) -> NoReturn:
    """Turn this process into the command."""
    os.setsid()
    for number in _RESTORED:
        signal.signal(number, signal.SIG_DFL)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    program = _program(request)
    if request["user"] is not None:
        user, group, groups = request["user"]
        os.setgroups(groups)
        os.setgid(group)
        os.setuid(user)
    if request["cwd"] is not None:
        os.chdir(os.fsdecode(_bytes(request["cwd"])))
    for name, (soft, hard) in request["limits"].items():
        _limit(getattr(resource, name), soft, hard)
    os.execve(*program)


def _program(request: dict[str, Any]) -> tuple[bytes, list[bytes], dict[bytes, bytes]]:
    environment = {_bytes(name): _bytes(value) for name, value in request["env"].items()}
    return b"/bin/sh", [b"/bin/sh", b"-c", _bytes(request["line"])], environment


def _bytes(text: str) -> bytes:
    """JSON has no bytes: a request has a character for each."""
    return text.encode("latin-1")


def _failure(error: Any) -> dict[str, Any]:
    is_missing = isinstance(error, FileNotFoundError)
    return {"failed": str(error), "missing": str(error.filename) if is_missing else None}


def _limit(what: int, soft: int, hard: int) -> None:
    """Lower a limit. One that is lower already stays."""
    most = resource.getrlimit(what)[1]
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(what, (soft, hard))


# --- both ----------------------------------------------------------------------------------


def _wake_on_child() -> int:
    """Return a pipe that can be read when a child has ended."""
    wake, end = os.pipe()
    for each in (wake, end):
        os.set_blocking(each, False)
    signal.set_wakeup_fd(end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return wake


def _drain(wake: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(wake, 4096):
            pass


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _kill_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _control(descriptor: int) -> socket.socket:
    """Return the worker's socket under the lowest free number: `select` takes none above 1023, and
    a worker may have that many files open."""
    low = os.dup(descriptor)
    os.close(descriptor)
    return socket.socket(fileno=low)


if __name__ == "__main__":
    start_commands(_control(int(sys.argv[1])))
