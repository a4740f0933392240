"""Worker processes: starting them, finding them, and stopping them from anywhere.

A worker is known by its record in the store. A PID alone is never trusted: a signal is sent only
to a process on this machine that started when the worker did.
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

import msgspec

from monarq import private_files
from monarq.client.client import Client
from monarq.errors import NotFoundError
from monarq.jobs.identity import is_alive
from monarq.jobs.presence import KIND, STOP_KIND, WorkerInfo, is_lost, read_worker
from monarq.model import Record

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
    return subprocess.Popen(
        command_line(worker_id, [*arguments, "--tied-to", str(tie)]),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=[tie],
    )


def start_detached(worker_id: str, arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """A worker that lives on when this process ends."""
    descriptor = private_files.open_file(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with os.fdopen(descriptor, "ab") as file:
        return subprocess.Popen(
            command_line(worker_id, arguments),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


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
        client.admin.get_record(KIND, worker_id)
    except NotFoundError:
        return False
    return True


def list_workers(client: Client, now: int) -> list[KnownWorker]:
    """All that are remembered, those that are there first, then by id."""
    workers, after = [], None
    while True:
        page = client.admin.list_records(KIND, after=after)
        workers += [_known(record, now) for record in page.rows]
        after = page.next
        if after is None:
            return sorted(workers, key=lambda known: (not known.is_there, known.info.id))


def _known(record: Record, now: int) -> KnownWorker:
    info = read_worker(record)
    here = info.process.host == socket.gethostname()
    gone = here and info.state != "stopped" and not is_alive(info.process)
    return KnownWorker(info, gone or is_lost(record, info, now))


def ask_to_stop(client: Client, workers: Iterable[KnownWorker]) -> None:
    """By a record, which reaches a worker wherever it runs, and by a signal if it is here."""
    for worker in workers:
        client.admin.put_record(
            STOP_KIND, worker.info.id, b"{}", keep_seconds=_STOP_REMEMBERED_SECONDS
        )
        send(worker, signal.SIGTERM)


def send(worker: KnownWorker, number: signal.Signals) -> bool:
    """Whether there was such a process."""
    if not is_alive(worker.info.process):
        return False
    try:
        os.kill(worker.info.process.pid, number)
    except ProcessLookupError:
        return False
    return True


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
    """End it at once; its guard ends what it runs, and its job goes back when the lease is over."""
    return send(worker, signal.SIGKILL)
