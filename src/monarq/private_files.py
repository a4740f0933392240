"""Files and directories that only their owner may use, whatever the umask.

Everything that Monarq keeps on a disk holds other people's data or secrets: databases, buffer
files, logs, keys. Files get mode 0600 and directories 0700. A file that exists already is
corrected if it belongs to this user; otherwise `readable_by_others` tells who may read it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import tempfile
from pathlib import Path

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
_OTHERS = 0o077
SECRET = re.compile(r"[A-Za-z0-9_-]{32,128}")
_LONGEST_SECRET = 256


def make_directory(directory: Path) -> None:
    """Make the directory and its missing parents, each for this user alone. Directories that
    exist keep their mode. Raises OSError."""
    missing = []
    for path in (directory, *directory.parents):
        if path.is_dir():
            break
        missing.append(path)
    for path in reversed(missing):
        try:
            path.mkdir(mode=DIRECTORY_MODE)
        except FileExistsError:
            if not path.is_dir():
                raise
        else:
            # A umask may have taken bits away from the owner, too.
            path.chmod(DIRECTORY_MODE)


def open_file(path: str | Path, flags: int) -> int:
    """Open a file, made with mode 0600 if it is not there (with `os.O_CREAT` among the flags).
    A file of this user that others may use is corrected. Return its descriptor.

    Not for a SQLite database that may be open in this process: closing the descriptor would
    end SQLite's locks. Use `create_file` and `restrict` for those.
    """
    descriptor = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
    try:
        status = os.fstat(descriptor)
        if (
            stat.S_ISREG(status.st_mode)
            and status.st_uid == os.geteuid()
            and stat.S_IMODE(status.st_mode) != FILE_MODE
        ):
            # A file system without modes refuses; then there is nothing to correct.
            with contextlib.suppress(OSError):
                os.fchmod(descriptor, FILE_MODE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def create_file(path: str | Path) -> bool:
    """Make an empty file with mode 0600. Return False if there is one already."""
    try:
        os.close(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def restrict(path: str | Path) -> None:
    """Take all rights from everybody but the owner, if this user owns the file or directory.
    Opens nothing, and ignores a path that does not exist. Does not follow a symbolic link at the
    end of the path: in a shared directory, another user could point it at any file of this user.
    """
    with contextlib.suppress(OSError):
        status = Path(path).lstat()
        is_ours = status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode)
        if is_ours and status.st_mode & _OTHERS:
            Path(path).chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)


def write_file(path: Path, content: bytes, *, replace: bool = True, mode: int = FILE_MODE) -> None:
    """Write a whole file, durably: a reader sees all of it or nothing. Without `replace`, raise
    FileExistsError if there is a file by this name."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            Path(draft).replace(path)
        else:
            os.link(draft, path)
    finally:
        Path(draft).unlink(missing_ok=True)


def read_secret(path: Path) -> str | None:
    """Return the secret in the file. None if there is none, or if the file does not belong to
    this user or others may use it: then its content may be known, or not be ours."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        is_ours = status.st_uid == os.geteuid() and not status.st_mode & _OTHERS
        if not is_ours or not stat.S_ISREG(status.st_mode):
            return None
        text = file.read(_LONGEST_SECRET).decode("ascii", "replace").strip()
    return text if SECRET.fullmatch(text) else None


def make_secret(path: Path) -> str:
    """Return the secret in the file. Make a random one if there is none, and replace one that
    others could read. Raises OSError."""
    known = read_secret(path)
    if known is not None:
        return known
    made = secrets.token_urlsafe(32).encode()
    make_directory(path.parent)
    try:
        write_file(path, made, replace=False)
    except FileExistsError:
        # Another process may have made it at this moment: then it is good.
        if read_secret(path) is None:
            write_file(path, made)
    known = read_secret(path)
    if known is None:
        raise PermissionError(errno.EPERM, "others can read it, and that cannot be changed")
    return known


def readable_by_others(path: str | Path) -> str | None:
    """Say who may use the file or directory besides its owner: "its group" or "all users". None
    if nobody may, or if it cannot be looked at."""
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return None
    if mode & 0o007:
        return "all users"
    return "its group" if mode & 0o070 else None


def other_owner(path: str | Path) -> int | None:
    """Return the user id of the file's or directory's owner, if that is neither this user nor root.
    None also if it cannot be looked at."""
    try:
        owner = Path(path).stat().st_uid
    except OSError:
        return None
    return None if owner in (os.geteuid(), 0) else owner
