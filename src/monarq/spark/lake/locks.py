"""Locks on files: held by a process, and free again when it ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held(path: Path, *, content: str = "", wait: bool = False) -> Iterator[bool]:
    """Whether it was got; always, with `wait`."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        if content:
            os.write(handle, content.encode())
        yield True
    finally:
        os.close(handle)


def is_free(path: Path) -> bool:
    """Whether nobody holds it, as far as this machine can see."""
    handle = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(handle)
