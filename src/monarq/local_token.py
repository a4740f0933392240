"""The token by which a program proves that it runs as the same user as the broker.

Where nobody has to authenticate, whoever reaches the port may push and pop. Running shell
commands takes more: the token in a file that only the broker's user can read. There is one file
per user, in the user's own data directory whatever `data_dir` and `store` say, so that clients
find it without being told. The broker makes it; clients only read it, and send it only to this
machine.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path

from platformdirs import user_data_path

from monarq import private_files
from monarq.errors import SettingsError

HEADER = "X-Monarq-Local"
_NAME = "local-token"
_TOKEN = re.compile(r"[A-Za-z0-9_-]{32,128}")
_LONGEST = 256


def token_file() -> Path:
    """The file of the user who runs this process. XDG_DATA_HOME moves it, as it moves the
    default data directory."""
    return user_data_path("monarq", appauthor=False) / _NAME


def read_token() -> str | None:
    """Return the token for a client to send, or None if there is none to read."""
    path = token_file()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return _read(descriptor)
    finally:
        os.close(descriptor)


def trusted_token() -> str | None:
    """Return the token that proves a caller to be this user. None unless the file belongs to
    this user and nobody else may read or write it."""
    try:
        descriptor = os.open(token_file(), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        is_ours = status.st_uid == os.geteuid() and not status.st_mode & 0o077
        return _read(descriptor) if is_ours else None
    finally:
        os.close(descriptor)


def make_token() -> str:
    """Return this user's token; make the file if there is none, and replace one that others
    could read. Raises SettingsError if that is not possible."""
    path = token_file()
    if not path.is_absolute():
        raise SettingsError("this user has no home directory; set HOME or XDG_DATA_HOME")
    known = trusted_token()
    if known is not None:
        return known
    made = secrets.token_urlsafe(32).encode()
    try:
        private_files.make_directory(path.parent)
        try:
            private_files.write_file(path, made, replace=False)
        except FileExistsError:
            # Another broker may have made it at this moment: then it is good.
            if trusted_token() is None:
                private_files.write_file(path, made)
    except OSError as error:
        raise SettingsError(f"cannot write {path}: {error.strerror or error}") from None
    known = trusted_token()
    if known is None:
        raise SettingsError(f"{path} can be read by others, and that cannot be changed")
    return known


def _read(descriptor: int) -> str | None:
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        text = os.read(descriptor, _LONGEST).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if _TOKEN.fullmatch(text) else None
