"""Which process a PID means: PIDs are used again, after a reboot and before."""

from __future__ import annotations

import os
import socket
from typing import Annotated

import psutil
from msgspec import Meta, Struct


class ProcessIdentity(Struct, frozen=True, kw_only=True, rename="camel"):
    host: str
    pid: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    started_at: float
    """As the system knows it; two processes never share a PID and this."""
    booted_at: float


def this_process() -> ProcessIdentity:
    return identify(os.getpid())


def identify(pid: int) -> ProcessIdentity:
    """`psutil.NoSuchProcess` if there is none."""
    return ProcessIdentity(
        host=socket.gethostname(),
        pid=pid,
        started_at=psutil.Process(pid).create_time(),
        booted_at=psutil.boot_time(),
    )


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether this very process runs, on this machine."""
    if identity.host != socket.gethostname():
        return False
    try:
        process = psutil.Process(identity.pid)
        same = abs(process.create_time() - identity.started_at) < 0.1
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
