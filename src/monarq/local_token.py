"""The token by which a program proves that it runs as the same user as the broker.

Where nobody has to authenticate, whoever reaches the port may push and pop. Running shell
commands takes more: the token in a file that only the broker's user can read. There is one file
per user, in the user's own data directory whatever `data_dir` and `store` say, so that clients
find it without being told. The broker makes it; clients only read it, and send it only to this
machine.
"""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_data_path

from monarq import private_files
from monarq.errors import SettingsError

HEADER = "X-Monarq-Local"
_NAME = "local-token"
_LONGEST = 256


def token_file() -> Path:
    """The file of the user who runs this process. XDG_DATA_HOME moves it, as it moves the
    default data directory."""
    return user_data_path("monarq", appauthor=False) / _NAME


def read_token() -> str | None:
    """Return the token for a client to send, or None if there is none to read."""
    try:
        with token_file().open("rb") as file:
            text = file.read(_LONGEST).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if private_files.SECRET.fullmatch(text) else None


def trusted_token() -> str | None:
    """Return the token that proves a caller to be this user. None unless the file belongs to
    this user and nobody else may read or write it."""
    return private_files.read_secret(token_file())


def make_token() -> str:
    """Return this user's token; make the file if there is none, and replace one that others
    could read. Raises SettingsError if that is not possible."""
    path = token_file()
    if not path.is_absolute():
        raise SettingsError("this user has no home directory; set HOME or XDG_DATA_HOME")
    try:
        return private_files.make_secret(path)
    except OSError as error:
        raise SettingsError(f"cannot keep {path}: {error.strerror or error}") from None
