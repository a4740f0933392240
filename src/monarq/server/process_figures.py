"""The process that answers, in figures."""

from __future__ import annotations

import os
import platform
import socket
import threading
from pathlib import Path

from monarq.clock import SECOND
from monarq.server.process_metrics import memory_bytes
from monarq.server.service import Service
from monarq.times import iso
from monarq.wire.status import ProcessFigures

_DESCRIPTORS = Path("/proc/self/fd")


def process_figures(service: Service) -> ProcessFigures:
    times = os.times()
    return ProcessFigures(
        hostname=socket.gethostname(),
        pid=os.getpid(),
        version=service.version,
        python=platform.python_version(),
        started_at=iso(service.started_at),
        uptime_seconds=max(0.0, (service.now() - service.started_at) / SECOND),
        cpu_user_seconds=times.user,
        cpu_system_seconds=times.system,
        memory_bytes=memory_bytes(),
        open_files=_open_files(),
        threads=threading.active_count(),
        processors=os.cpu_count() or 1,
    )


def _open_files() -> int | None:
    return len(os.listdir(_DESCRIPTORS)) if _DESCRIPTORS.is_dir() else None  # noqa: PTH208
