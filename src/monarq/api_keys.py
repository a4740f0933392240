"""API keys and the file that keeps them, hashed.

A key is `mq_<id>_<secret>`: the id finds its entry, the secret proves it. The secret has 256
random bits, so one round of a salted hash keeps it safe: there is nothing to guess. The file is
replaced as a whole, so that whoever reads it never sees half of it, and writers take turns.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from monarq import private_files
from monarq.errors import InvalidRequestError, NotFoundError, SettingsError

PREFIX = "mq_"
LONGEST_NAME = 255
_ID_BYTES = 6
_SECRET_BYTES = 32
_SALT_BYTES = 16


class ApiKey(Struct, frozen=True, rename="camel", kw_only=True):
    """What is kept of a key; the key itself is not."""

    id: str
    name: str
    role: str
    salt: str
    hash: str
    created_at: int
    """Microseconds since the epoch, as `expires_at`."""
    expires_at: int | None = None

    def matches(self, secret: str) -> bool:
        return hmac.compare_digest(_hash(bytes.fromhex(self.salt), secret), self.hash)


class KeyFile(Struct, frozen=True):
    keys: list[ApiKey] = []


def split_key(key: str) -> tuple[str, str] | None:
    """The id and the secret of a key; None if it does not have the form of one."""
    parts = key.split("_", 2)
    if len(parts) != 3 or parts[0] != PREFIX[:-1] or not all(parts):
        return None
    return parts[1], parts[2]


def read_keys(path: Path) -> list[ApiKey]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=KeyFile).keys
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SettingsError(f"api_keys: {path} is not a file of API keys: {error}") from None
    except OSError as error:
        raise SettingsError(f"api_keys: cannot read {path}: {error.strerror or error}") from None


def create_key(
    path: Path, *, name: str, role: str, now: int, expires_at: int | None = None
) -> tuple[str, ApiKey]:
    """Make a key and add it to the file (made, for its owner alone, if it is not there).

    The first of the answer is the key: it is told now and never again.
    """
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise InvalidRequestError(f"a name is 1 to {LONGEST_NAME} printable characters")
    id_ = secrets.token_hex(_ID_BYTES)
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    salt = secrets.token_bytes(_SALT_BYTES)
    key = ApiKey(
        id=id_,
        name=name,
        role=role,
        salt=salt.hex(),
        hash=_hash(salt, secret),
        created_at=now,
        expires_at=expires_at,
    )
    with _changing(path) as keys:
        keys.append(key)
    return f"{PREFIX}{id_}_{secret}", key


def revoke_key(path: Path, id_: str) -> ApiKey:
    """Take a key out of the file."""
    with _changing(path) as keys:
        found = next((key for key in keys if key.id == id_), None)
        if found is None:
            raise NotFoundError(f"{path} has no key with the id {id_!r}")
        keys.remove(found)
    return found


@contextlib.contextmanager
def _changing(path: Path) -> Iterator[list[ApiKey]]:
    """The keys, to be changed in place; written if the block ends well."""
    try:
        private_files.make_directory(path.parent)
        lock_file = private_files.open_file(
            path.with_name(path.name + ".lock"), os.O_WRONLY | os.O_CREAT
        )
        with os.fdopen(lock_file, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            keys = read_keys(path) if path.exists() else []
            yield keys
            _replace(path, msgspec.json.format(msgspec.json.encode(KeyFile(keys))) + b"\n")
    except OSError as error:
        raise SettingsError(f"api_keys: cannot write {path}: {error.strerror or error}") from None


def _replace(path: Path, content: bytes) -> None:
    # The server may run as another user, who was allowed to read it.
    mode = path.stat().st_mode & 0o777 if path.exists() else private_files.FILE_MODE
    private_files.write_file(path, content, mode=mode)


def _hash(salt: bytes, secret: str) -> str:
    return hashlib.sha256(salt + secret.encode("utf-8", "surrogatepass")).hexdigest()
