"""Keeps the environment of a worker from the commands that it runs.

Processes of one user may read each other's environment as it was at their start: from
`/proc/PID/environ` on Linux, with `ps eww` elsewhere. So a worker, and the command that starts it,
runs with only the variables that its jobs inherit anyway or that Python itself needs. All others
are handed over in a file without a name, and are set before anything else happens.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from monarq.jobs import linux

#: All that a command inherits; what else it needs, the job names.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")
#: What Python and the system's libraries look at before `take_over` runs.
_NEEDED_PREFIXES = ("PYTHON", "LC_", "LD_", "DYLD_", "GLIBC_", "MALLOC_", "__PYVENV_LAUNCHER__")

VARIABLE = "MONARQ_ENVIRONMENT_FD"
#: Options whose values may hold a password.
_SHOWING = frozenset({"--store", "--url", "--token"})

_was_taken_over = False


def safe_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a process may show to its user's other processes."""
    return {
        name: value
        for name, value in environment.items()
        if name in INHERITED or name.startswith(_NEEDED_PREFIXES)
    }


def hand_over(environment: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """Return the environment to start a process with, and the file descriptor that it must inherit;
    `take_over` in that process makes `os.environ` the whole of `environment`."""
    data = b"\0".join(
        os.fsencode(name) + b"=" + os.fsencode(value) for name, value in environment.items()
    )
    descriptor = linux.unnamed_file()
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return safe_environment(environment) | {VARIABLE: str(descriptor)}, descriptor


def take_over() -> None:
    """Set the variables that were handed over, if any, and hide this process."""
    descriptor = os.environ.pop(VARIABLE, None)
    if descriptor is None:
        return
    linux.hide_process()
    with os.fdopen(int(descriptor), "rb") as file:
        pairs = file.read().split(b"\0")
    for pair in pairs:
        name, _, value = pair.partition(b"=")
        if name:
            os.environb[name] = value
    global _was_taken_over
    _was_taken_over = True


def restart_hidden(where: Mapping[str, str]) -> None:
    """Restart `monarq worker start` with nothing to be seen of its environment or of the options
    that say where the broker is; those become the variables `where`. Return at once if this process
    is hidden already, or runs something else."""
    if _was_taken_over or sys.argv[1:3] != ["worker", "start"]:
        return
    environment, descriptor = hand_over({**os.environ, **where})
    os.set_inheritable(descriptor, True)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    arguments = _without(sys.argv[1:], _SHOWING)
    os.execve(sys.executable, [sys.executable, "-m", "monarq", *arguments], environment)


def _without(arguments: list[str], options: frozenset[str]) -> list[str]:
    """The arguments without these options, each of which has a value."""
    kept = []
    rest = iter(arguments)
    for argument in rest:
        if argument in options:
            next(rest, None)
        elif argument.partition("=")[0] not in options:
            kept.append(argument)
    return kept
