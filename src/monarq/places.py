"""Where things are on this machine: the data directory, the store in it, the push buffer.

Follows the platform's conventions (XDG on Linux). Makes directories, opens nothing.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from platformdirs import user_config_path, user_data_path

from monarq import private_files
from monarq.config import Settings
from monarq.errors import SettingsError

APPLICATION = "monarq"
_UNCLEAR = "postgresql://***"


def user_settings_file() -> Path:
    """The file that is read, if it exists, when no other is named."""
    return user_config_path(APPLICATION, appauthor=False) / "config.toml"


def data_directory(settings: Settings) -> Path:
    """The data directory; made, for this user alone, if it is not there."""
    if settings.data_dir:
        directory = Path(settings.data_dir).expanduser().absolute()
    else:
        directory = user_data_path(APPLICATION, appauthor=False)
    return _made(directory)


def buffer_directory(settings: Settings) -> Path:
    """Where pushes are kept while the store is down."""
    return _made(data_directory(settings) / "buffer")


def store_address(settings: Settings) -> str:
    """The address of the store; a SQLite file in the data directory if none is set."""
    return settings.store or f"sqlite:///{data_directory(settings) / 'monarq.db'}"


def is_postgres(address: str) -> bool:
    return address.partition(":")[0] in ("postgresql", "postgres")


def without_password(address: str) -> str:
    """The address as it may be shown; passwords of any place in it are replaced.

    An address whose parts cannot be told apart for sure, such as one with an unescaped "/" or "#"
    in the password, is shown without any of them.
    """
    if not is_postgres(address):
        return address
    try:
        parts = urlsplit(address)
        if "," not in parts.netloc:  # several hosts have ports of their own
            _ = parts.port
    except ValueError:
        return _UNCLEAR
    if parts.scheme not in ("postgresql", "postgres") or parts.fragment:
        return _UNCLEAR
    user, at, host = parts.netloc.rpartition("@")
    if "@" in parts.path + parts.query:
        return _UNCLEAR
    name, colon, _ = user.partition(":")
    netloc = f"{name}{':***' if colon else ''}{at}{host}"
    pairs = [pair.partition("=") for pair in parts.query.split("&") if pair]
    query = "&".join(
        f"{key}=***" if "password" in key.lower() else f"{key}={value}" if equals else "***"
        for key, equals, value in pairs
    )
    return urlunsplit(parts._replace(netloc=netloc, query=query))


def _made(directory: Path) -> Path:
    try:
        private_files.make_directory(directory)
    except OSError as error:
        raise SettingsError(
            f"data_dir: cannot make {directory}: {error.strerror or error}; "
            "set --data-dir to a directory that can be written to"
        ) from None
    return directory
