"""What only Linux offers for keeping a worker apart from its jobs, with a fallback elsewhere.

Imports only the standard library: the program in `supervisor.py`, which has nothing else, loads
this module too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path

IS_LINUX = sys.platform == "linux"

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def hide_process() -> bool:
    """Close this process's memory, environment and open files to other processes of the same user.
    Processes with all capabilities (root) see them all the same. Holds until the next `exec`.
    Elsewhere than on Linux, do nothing and return False."""
    return _prctl(_PR_SET_DUMPABLE, 0)


def adopt_orphans() -> bool:
    """Make this process the parent of all descendants whose parent dies, so that none of them can
    leave by `setsid` or a double fork. Elsewhere than on Linux, do nothing and return False."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def unnamed_file() -> int:
    """Return a new file that has no name: in memory, or elsewhere than on Linux on disk. Programs
    that this process starts inherit it only if they are told to."""
    if IS_LINUX:
        return os.memfd_create("monarq")
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def all_children() -> dict[int, list[int]]:
    """Return the children of every process, zombies included. Elsewhere than on Linux, return an
    empty mapping."""
    children: dict[int, list[int]] = {}
    if not IS_LINUX:
        return children
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                line = Path(entry.path, "stat").read_bytes()
                # The second field is a name in parentheses, which may hold anything.
                parent = line.rpartition(b")")[2].split()[1]
                children.setdefault(int(parent), []).append(int(entry.name))
    return children


def descendants(pid: int, children: dict[int, list[int]]) -> list[int]:
    """Return the children of a process, their children and so on."""
    found, unseen = [], [pid]
    while unseen:
        next_ones = children.get(unseen.pop(), [])
        found += next_ones
        unseen += next_ones
    return found


def _prctl(option: int, value: int) -> bool:
    if not IS_LINUX:
        return False
    library = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    done: int = library.prctl(option, ctypes.c_ulong(value), zero, zero, zero)
    return done == 0
