"""How Spark reads from Monarq, whichever kind of url names it: a broker, PostgreSQL, SQLite.

The same rows every way. Synchronous, for Spark's Python workers; nothing here imports pyspark.
"""

from __future__ import annotations

import os
import threading

from monarq.crypto import parse_key
from monarq.errors import InvalidRequestError
from monarq.spark.access.contract import Access, QueueInfo, SeqRange

__all__ = ["Access", "QueueInfo", "SeqRange", "open_access"]

_Key = tuple[str, str | None, str | None, str]
_opened: dict[_Key, Access] = {}
_owner = 0
_lock = threading.Lock()


def open_access(
    url: str,
    *,
    token: str | None = None,
    encryption_key: str | None = None,
    schema: str = "monarq",
) -> Access:
    """The way to `url`, kept open for the process: to connect takes longer than a small read.

    `token` is for a broker. `encryption_key` is for a store whose payloads are encrypted; several
    with commas between. `schema` is PostgreSQL's.
    """
    global _owner
    key = (url, token, encryption_key, schema)
    with _lock:
        # A forked process must not use what its parent has open, nor close it.
        if _owner != os.getpid():
            _opened.clear()
            _owner = os.getpid()
        access = _opened.get(key)
        if access is None or access.is_closed:
            access = _opened[key] = _open(*key)
        return access


def _open(url: str, token: str | None, encryption_key: str | None, schema: str) -> Access:
    scheme = url.partition(":")[0]
    if scheme in ("http", "https"):
        if encryption_key is not None:
            raise InvalidRequestError("an encryption key is for a store: a broker has its own")
        # Imported here, and below, so that nobody pays for the way that is not taken.
        from monarq.spark.access.http import HttpAccess

        return HttpAccess(url, token)
    if scheme in ("postgresql", "postgres", "sqlite"):
        if token is not None:
            raise InvalidRequestError("a token is for a broker behind HTTP: a store has none")
        from monarq.spark.access.stored import StoreAccess

        keys = [] if encryption_key is None else list(map(parse_key, encryption_key.split(",")))
        return StoreAccess(url, keys, schema)
    raise InvalidRequestError(
        f"{scheme!r} is no kind of url: use http://…, https://…, postgresql://… or sqlite:///file"
    )
