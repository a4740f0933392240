"""Several processes on one port: starts them, starts them again when they die, stops them.

It holds the port and the sockets of the notices, and nothing else: no store, no loop, no thread,
so that it can fork at any time and has little to fail at.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

logger = logging.getLogger("monarq.serving")

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 10.0
HEALTHY_SECONDS = 30.0
"""A process that lived this long is started again at once when it dies."""
STOP_NOW = signal.SIGUSR1
"""What a process is told that should not wait for what is under way."""
UNUSABLE = 2
"""The exit code of a process that cannot serve with these settings."""


@dataclass(slots=True)
class _Child:
    number: int
    pid: int = 0
    """0 while it does not run."""
    ready_fd: int = -1
    is_ready: bool = False
    started: float = 0.0
    starts_at: float = 0.0
    pause: float = FIRST_PAUSE_SECONDS


class Supervisor:
    """`serve(number, ready, lifeline)` is what each process runs, until it returns its exit code.
    `lifeline` can be read from once the supervisor is gone."""

    def __init__(
        self,
        count: int,
        serve: Callable[[int, Callable[[], None], int], int],
        all_ready: Callable[[], None],
        *,
        stop_seconds: float,
    ) -> None:
        self._children = [_Child(number) for number in range(count)]
        self._serve = serve
        self._all_ready = all_ready
        self._stop_seconds = stop_seconds
        self._lifeline = os.pipe()
        self._signals: list[int] = []
        self._stopping_since: float | None = None
        self._exit_code = 0
        self._greeted = False

    def run(self) -> int:
        woken, wakes = socket.socketpair()
        woken.setblocking(False)
        wakes.setblocking(False)
        handled = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
        before = {number: signal.signal(number, self._note) for number in handled}
        old_fd = signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        try:
            while not self._is_over():
                self._start_due(woken, wakes)
                self._wait(woken)
                self._obey()
                self._reap()
                self._see_who_is_ready()
        finally:
            self._kill_all()
            signal.set_wakeup_fd(old_fd)
            for number, handler in before.items():
                signal.signal(number, handler)
            woken.close()
            wakes.close()
            for descriptor in self._lifeline:
                os.close(descriptor)
        return self._exit_code

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    def _is_over(self) -> bool:
        return self._stopping_since is not None and not any(child.pid for child in self._children)

    # --- starting --------------------------------------------------------------------------

    def _start_due(self, *ours: socket.socket) -> None:
        if self._stopping_since is not None:
            return
        now = time.monotonic()
        for child in self._children:
            if not child.pid and child.starts_at <= now:
                self._start(child, ours)

    def _start(self, child: _Child, ours: tuple[socket.socket, ...]) -> None:
        ready, told = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            # Whatever happens here must not run what the parent still has to do.
            code = 1
            try:
                self._become_child(ready, ours)
                code = self._serve(child.number, lambda: _tell(told), self._lifeline[0])
            except BaseException:
                logger.exception("the process failed")
            finally:
                with contextlib.suppress(Exception):
                    sys.stdout.flush()
                    sys.stderr.flush()
                os._exit(code)
        os.close(told)
        child.pid = pid
        child.ready_fd = ready
        child.is_ready = False
        child.started = time.monotonic()

    def _become_child(self, ready: int, ours: tuple[socket.socket, ...]) -> None:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        self._signals.clear()
        os.close(ready)
        os.close(self._lifeline[1])
        for one in ours:
            one.close()
        for child in self._children:
            if child.ready_fd >= 0:
                os.close(child.ready_fd)

    def _see_who_is_ready(self) -> None:
        for child in self._children:
            if child.ready_fd < 0 or not select.select([child.ready_fd], [], [], 0)[0]:
                continue
            child.is_ready = bool(os.read(child.ready_fd, 1))
            self._forget_pipe(child)
        if not self._greeted and all(child.is_ready for child in self._children):
            self._greeted = True
            self._all_ready()

    def _forget_pipe(self, child: _Child) -> None:
        if child.ready_fd >= 0:
            os.close(child.ready_fd)
            child.ready_fd = -1

    # --- waiting ---------------------------------------------------------------------------

    def _wait(self, woken: socket.socket) -> None:
        now = time.monotonic()
        pipes = [child.ready_fd for child in self._children if child.ready_fd >= 0]
        due = [child.starts_at - now for child in self._children if not child.pid]
        if self._stopping_since is not None:
            due = [self._stopping_since + self._stop_seconds - now]
        timeout = max(0.0, min(due)) if due else None
        select.select([woken.fileno(), *pipes], [], [], timeout)
        with contextlib.suppress(BlockingIOError):
            while woken.recv(512):
                pass

    def _obey(self) -> None:
        signals, self._signals = self._signals, []
        for number in signals:
            if number == signal.SIGHUP:
                self._send(signal.SIGHUP)
            elif number in (signal.SIGTERM, signal.SIGINT):
                if self._stopping_since is None:
                    self._stopping_since = time.monotonic()
                    self._send(signal.SIGTERM)
                else:
                    self._send(STOP_NOW)
        if (
            self._stopping_since is not None
            and time.monotonic() >= self._stopping_since + self._stop_seconds
        ):
            logger.warning("processes that did not stop in time are killed")
            self._kill_all()

    def _send(self, number: int) -> None:
        for child in self._children:
            if child.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, number)

    def _kill_all(self) -> None:
        self._send(signal.SIGKILL)
        for child in self._children:
            if child.pid:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child.pid, 0)
                child.pid = 0
            self._forget_pipe(child)

    # --- ending ----------------------------------------------------------------------------

    def _reap(self) -> None:
        for child in self._children:
            if not child.pid:
                continue
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                child.pid = 0
                self._forget_pipe(child)
                self._died(child, os.waitstatus_to_exitcode(status))

    def _died(self, child: _Child, code: int) -> None:
        if self._stopping_since is not None:
            self._exit_code = self._exit_code or max(code, 0)
            return
        if code == UNUSABLE or (code and not self._greeted):
            # It would not do better a second time.
            self._exit_code = code if code > 0 else 1
            self._stopping_since = time.monotonic()
            self._send(signal.SIGTERM)
            return
        now = time.monotonic()
        if now - child.started >= HEALTHY_SECONDS:
            child.pause = FIRST_PAUSE_SECONDS
        child.starts_at = now + child.pause
        fields = {"worker": child.number, "code": code, "restart_seconds": child.pause}
        logger.error("a process died and is started again", extra={"fields": fields})
        child.pause = min(child.pause * 2, LONGEST_PAUSE_SECONDS)


def _tell(descriptor: int) -> None:
    os.write(descriptor, b"r")
    os.close(descriptor)
