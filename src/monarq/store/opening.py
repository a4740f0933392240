"""Opens the store that an address names."""

from __future__ import annotations

from collections.abc import Sequence

from monarq.clock import Clock, SystemClock
from monarq.crypto import Cipher
from monarq.errors import InvalidRequestError
from monarq.store.contract import Store
from monarq.store.validation import check_text


async def open_store(
    address: str,
    *,
    clock: Clock | None = None,
    keys: Sequence[bytes] = (),
    schema: str = "monarq",
    connections: int = 10,
    timeout_seconds: float | None = None,
) -> Store:
    """Open (and where needed make or migrate) the store at `address`.

    `memory:` · `sqlite:///relative.db` · `sqlite:////absolute.db` · `postgresql://…`.
    `keys` are encryption keys, the one to encrypt with first. PostgreSQL's are `schema`, the most
    `connections`, and `timeout_seconds`, how long a statement may take.
    """
    clock = clock or SystemClock()
    cipher = Cipher(keys) if keys else None
    scheme, colon, rest = address.partition(":")
    if scheme in ("memory", "sqlite"):
        # Imported here so that nobody pays for the store that is not used.
        from monarq.store.sqlite import SqliteStore

        if scheme == "memory":
            return await SqliteStore.open(":memory:", clock=clock, cipher=cipher)
        path = rest.removeprefix("///")
        if path == rest or not path:
            raise InvalidRequestError("a SQLite address is sqlite:///path/to/file.db")
        check_text(path, "the path of a SQLite file")
        return await SqliteStore.open(path, clock=clock, cipher=cipher)
    if scheme in ("postgresql", "postgres") and colon:
        from monarq.store.postgres import PostgresStore

        return await PostgresStore.open(
            address,
            clock=clock,
            cipher=cipher,
            schema=schema,
            connections=connections,
            timeout_seconds=timeout_seconds,
        )
    raise InvalidRequestError(
        f"{scheme!r} is no kind of store: use memory:, sqlite:///file or postgresql://…"
    )
