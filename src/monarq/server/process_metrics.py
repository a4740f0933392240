"""What this process uses: CPU, memory, file descriptors. From `/proc` where there is one."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from monarq.server.metric_families import Family, counter, gauge

_PAGE_BYTES = resource.getpagesize()
_DESCRIPTORS = Path("/proc/self/fd")
_MEMORY = Path("/proc/self/statm")


def process_families() -> list[Family]:
    times = os.times()
    families = [
        counter("monarq_process_cpu_seconds", "CPU time", [((), times.user + times.system)]),
        gauge("monarq_process_memory_bytes", "Resident memory", [((), float(memory_bytes()))]),
        gauge("monarq_processes", "Processes that share the port", [((), 1.0)]),
    ]
    if _DESCRIPTORS.is_dir():
        count = float(len(os.listdir(_DESCRIPTORS)))  # noqa: PTH208 (no need for paths)
        families.append(gauge("monarq_process_open_files", "Open descriptors", [((), count)]))
    return families


def memory_bytes() -> int:
    """Resident memory now; where that cannot be told, the most it ever was."""
    try:
        return int(_MEMORY.read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
