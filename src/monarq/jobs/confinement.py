"""As which user a worker's commands run, and how much of the machine each may use."""

from __future__ import annotations

import os
import pwd
import signal
from pathlib import Path

from msgspec import Struct

from monarq.errors import InvalidRequestError

#: What programs say when memory or processes run out, in lower case.
_OUT_OF_MEMORY = ("cannot allocate memory", "memoryerror", "out of memory", "bad_alloc")
_OUT_OF_PROCESSES = ("resource temporarily unavailable", "cannot fork")
#: After SIGXCPU a command has so many seconds of CPU time until SIGKILL.
_CPU_GRACE_SECONDS = 2


class User(Struct, frozen=True):
    """A user of the system."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    @property
    def directory(self) -> str:
        """Where commands that name no directory run."""
        return self.home if Path(self.home).is_dir() else "/"


class Confinement(Struct, frozen=True, kw_only=True):
    """What holds for all commands of a worker. None is no limit."""

    user: User | None = None
    max_memory: int | None = None
    """Bytes of address space of each process."""
    max_processes: int | None = None
    """Processes of the user at a time, whoever started them. Does not bind root."""
    max_cpu_seconds: int | None = None
    """CPU time of each process."""

    @property
    def limits(self) -> dict[str, tuple[int, int]]:
        """Soft and hard limits, by their names in `resource`."""
        limits = {}
        if self.max_memory is not None:
            limits["RLIMIT_AS"] = (self.max_memory, self.max_memory)
        if self.max_processes is not None:
            limits["RLIMIT_NPROC"] = (self.max_processes, self.max_processes)
        if self.max_cpu_seconds is not None:
            seconds = self.max_cpu_seconds
            limits["RLIMIT_CPU"] = (seconds, seconds + _CPU_GRACE_SECONDS)
        return limits

    @property
    def environment(self) -> dict[str, str]:
        """Variables that differ from the worker's."""
        if self.user is None:
            return {}
        return {
            "HOME": self.user.home,
            "USER": self.user.name,
            "LOGNAME": self.user.name,
            "SHELL": self.user.shell,
        }

    def explain(self, code: int, cpu_seconds: float, last_line: str) -> str | None:
        """Say which limit made a command fail, if that can be known."""
        # A shell exits with 128 and the number of the signal that ended its command.
        number = -code if code < 0 else code - 128
        limit = self.max_cpu_seconds
        is_over = number == signal.SIGKILL and limit is not None and cpu_seconds >= limit
        if limit is not None and (number == signal.SIGXCPU or is_over):
            return f"it used more CPU time than --max-cpu-seconds {limit}"
        said = last_line.lower()
        if self.max_memory is not None and any(words in said for words in _OUT_OF_MEMORY):
            return f"it may have needed more memory than --max-memory {self.max_memory}"
        if self.max_processes is not None and any(words in said for words in _OUT_OF_PROCESSES):
            return f"it may have needed more processes than --max-processes {self.max_processes}"
        return None


def find_user(name: str) -> User:
    """Return the user to run commands as. Raise `InvalidRequestError` if there is no such user, or
    if this process may not become another one."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise InvalidRequestError(f"--run-as: there is no user {name!r}") from None
    if os.geteuid() != 0:
        raise InvalidRequestError(
            "--run-as: only a worker that runs as root can run commands as another user; start it "
            f"as root, or as {name} without --run-as"
        )
    return User(
        name=found.pw_name,
        uid=found.pw_uid,
        gid=found.pw_gid,
        groups=tuple(os.getgrouplist(found.pw_name, found.pw_gid)),
        home=found.pw_dir,
        shell=found.pw_shell or "/bin/sh",
    )
