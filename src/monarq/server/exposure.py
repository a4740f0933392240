"""Warnings about files that other users of the machine can read.

Monarq makes its files private and corrects its own (`monarq.private_files`). What is left belongs
to another user, or was made by the administrator: the data directory, keys, the settings file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from monarq import private_files
from monarq.config import FIELDS, Settings
from monarq.places import data_directory, store_address, without_password
from monarq.settings_loading import Loaded

_SQLITE = "sqlite:///"


def exposed_files(settings: Settings) -> Iterator[str]:
    """Yield a warning for each file or directory of the broker that others can read."""
    yield from _warning("the data directory", data_directory(settings), 0o700)
    address = store_address(settings)
    if address.startswith(_SQLITE):
        # SQLite follows a symbolic link, and puts -wal and -shm beside the file.
        path = os.path.realpath(address.removeprefix(_SQLITE))
        for ending in ("", "-wal", "-shm"):
            yield from _warning("the database", Path(f"{path}{ending}"), 0o600)
    for what, path in (
        ("the file of API keys", settings.api_keys),
        ("the key of the TLS certificate", settings.tls_key),
    ):
        if path:
            yield from _warning(what, Path(path).expanduser(), 0o600)


def exposed_config(loaded: Loaded) -> Iterator[str]:
    """Yield a warning if others can read the settings file and it holds a secret."""
    if loaded.file is None:
        return
    settings = loaded.settings
    in_file = {name for name, source in loaded.sources.items() if source.kind == "file"}
    has_secret = any(FIELDS[name].secret and getattr(settings, name) for name in in_file)
    has_password = "store" in in_file and without_password(settings.store) != settings.store
    if has_secret or has_password:
        yield from _warning("the settings file, which holds secrets,", loaded.file, 0o600)


def _warning(what: str, path: Path, mode: int) -> Iterator[str]:
    readers = private_files.readable_by_others(path)
    if readers is not None:
        yield f"{what} {path} can be used by {readers}: chmod {mode:o} {path}"
    elif (owner := private_files.other_owner(path)) is not None:
        yield f"{what} {path} can be used by its owner, user {owner}: give it to the broker's user"
