"""What a serving process does with freed memory; in a process of its own, whose settings these
are."""

from __future__ import annotations

import platform
import subprocess
import sys

ROUNDS = 10

#: Makes and frees the buffers of a large request over and over; how many pages the system had to
#: give for that, once warm, and how many bytes of a huge buffer stayed when it was freed.
PROGRAM = f"""
import os, resource
from monarq.server.allocation import keep_freed_memory

def serve():
    buffers = [b"x" * (1 << 20) for _ in range(8)]

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

keep_freed_memory()
serve()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    serve()
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
start = resident()
huge = b"x" * (64 << 20)
grown = resident() - start
del huge
print(faults, grown, resident() - start)
"""


def test_a_process_keeps_what_the_next_request_wants_and_gives_back_what_is_huge() -> None:
    if platform.libc_ver()[0] != "glibc":
        return
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    faults, grown, left = map(int, done.stdout.split())
    # All pages of one round, of which there are ten.
    assert faults < (8 << 20) // 4096
    assert grown >= 64 << 20
    assert left < 1 << 20
