"""Worker processes: starting them, finding them, and stopping them from anywhere.

A worker is known by its record in the store, which others may have written. So a signal is sent
only to a process that is provably the worker: on this machine, of this user, started when the
record says, and with the worker's id where `command_line` puts it. Every other worker is asked to
stop through the store alone.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec
import psutil

from monarq import private_files
from monarq.client.client import Client
from monarq.errors import NotFoundError
from monarq.jobs.environment import hand_over
from monarq.jobs.identity import is_alive
from monarq.jobs.presence import WorkerInfo, is_lost, read_worker
from monarq.model import Record
from monarq.operations.records import STOP_KIND, WORKER_KIND

_STOP_REMEMBERED_SECONDS = 86_400.0
_LOOK_SECONDS = 0.1


class KnownWorker(msgspec.Struct, frozen=True):
    info: WorkerInfo
    is_lost: bool

    @property
    def state(self) -> str:
        return "lost" if self.is_lost else self.info.state

    @property
    def is_there(self) -> bool:
        return self.state in ("running", "stopping")


def command_line(worker_id: str, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "monarq", "worker", "run", "--id", worker_id, *arguments]


def log_file(data: Path, worker_id: str) -> Path:
    directory = data / "workers"
    private_files.make_directory(directory)
    return directory / f"{worker_id}.log"


def start_tied(worker_id: str, arguments: Sequence[str], tie: int) -> subprocess.Popen[bytes]:
    """A worker in a session of its own, so that Ctrl-C is not for it. `tie` is a pipe to read: it
    stops when nobody holds the other end any more."""
    return _start(worker_id, [*arguments, "--tied-to", str(tie)], pass_fds=[tie])


def start_detached(worker_id: str, arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """A worker that lives on when this process ends."""
    descriptor = private_files.open_file(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with os.fdopen(descriptor, "ab") as file:
        return _start(worker_id, arguments, output=file)


def _start(
    worker_id: str,
    arguments: Sequence[str],
    *,
    output: IO[bytes] | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    environment, descriptor = hand_over(os.environ)
    try:
        return subprocess.Popen(
            command_line(worker_id, arguments),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
            pass_fds=[descriptor, *pass_fds],
        )
    finally:
        os.close(descriptor)


def wait_until_there(
    client: Client, started: Mapping[str, subprocess.Popen[bytes]], timeout: float
) -> str | None:
    """Until each has said that it is there, or has ended, or the time is over: on a busy machine a
    worker may need longer. Answers the id of one that ended with an error."""
    deadline = time.monotonic() + timeout
    waiting = dict(started)
    while waiting and time.monotonic() < deadline:
        for worker_id, process in list(waiting.items()):
            code = process.poll()
            if code:
                return worker_id
            if code == 0 or _is_known(client, worker_id):
                del waiting[worker_id]
        if waiting:
            time.sleep(_LOOK_SECONDS)
    return None


def _is_known(client: Client, worker_id: str) -> bool:
    try:
        client.admin.get_record(WORKER_KIND, worker_id)
    except NotFoundError:
        return False
    return True


def list_workers(client: Client, now: int) -> list[KnownWorker]:
    """All that are remembered, those that are there first, then by id."""
    workers, after = [], None
    while True:
        page = client.admin.list_records(WORKER_KIND, after=after)
        workers += [known for record in page.rows if (known := _known(record, now)) is not None]
        after = page.next
        if after is None:
            return sorted(workers, key=lambda known: (not known.is_there, known.info.id))


def _known(record: Record, now: int) -> KnownWorker | None:
    info = read_worker(record)
    if info is None:
        return None
    here = info.process.host == socket.gethostname()
    gone = here and info.state != "stopped" and not is_alive(info.process)
    return KnownWorker(info, gone or is_lost(record, info, now))


def ask_to_stop(client: Client, workers: Iterable[KnownWorker]) -> list[KnownWorker]:
    """Ask by a record, which reaches a worker wherever it runs, and by a signal if it runs here.
    Return the workers of this machine that were not sent a signal."""
    asked_by_record = []
    for worker in workers:
        client.admin.put_record(
            STOP_KIND, worker.info.id, b"{}", keep_seconds=_STOP_REMEMBERED_SECONDS
        )
        if not send(worker, signal.SIGTERM) and worker.info.process.host == socket.gethostname():
            asked_by_record.append(worker)
    return asked_by_record


def send(worker: KnownWorker, number: signal.Signals) -> bool:
    """Send a signal to the worker's process. Return False, and send none, if no process is provably
    this worker."""
    process = find_process(worker.info)
    if process is None:
        return False
    try:
        # Sends nothing if the PID was given to another process in the meantime.
        process.send_signal(number)
    except (psutil.Error, OSError):
        return False
    return True


def find_process(info: WorkerInfo) -> psutil.Process | None:
    """Return the process that is provably this worker, or None."""
    try:
        if not is_alive(info.process):
            return None
        process = psutil.Process(info.process.pid)
        expected = command_line(info.id, [])[1:]
        is_proven = (
            process.uids().real == os.getuid()
            and process.cmdline()[1 : 1 + len(expected)] == expected
        )
        return process if is_proven and is_alive(info.process) else None
    except psutil.Error:
        return None


def wait_until_gone(client: Client, ids: set[str], timeout: float, now: int) -> list[KnownWorker]:
    """Those that are still there after the time."""
    deadline = time.monotonic() + timeout
    while True:
        left = [
            known for known in list_workers(client, now) if known.info.id in ids and known.is_there
        ]
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(_LOOK_SECONDS)


def kill(worker: KnownWorker) -> bool:
    """End the worker at once. Its guard ends its commands, and its jobs go back to the queue when
    their leases have expired. Return False if no process is provably this worker."""
    return send(worker, signal.SIGKILL)
