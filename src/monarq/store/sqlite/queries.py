"""Runs the handlers of `store/queries/` on SQLite."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Coroutine, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from monarq.crypto import Cipher
from monarq.store.sqlite.session import Session

T = TypeVar("T")

_TIME = re.compile(r"monarq\.time\((\$\d+)\)")


class SqliteQueries:
    """The statements of one transaction. Nothing is awaited: the connection's thread runs them."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def cipher(self) -> Cipher | None:
        return self._session.cipher

    def now(self) -> int:
        return self._session.now

    async def fetch(self, sql: str, *args: Any) -> Sequence[Sequence[Any]]:
        named = {str(number): value for number, value in enumerate(args, 1)}
        return self._session.db.execute(_rendered(sql), named).fetchall()

    def pushed_at(self, partition: str, seq: str) -> str:
        return (
            f"(select s.created_at from monarq.segments s where s.partition_id = {partition} "
            f"and s.last_seq >= {seq} order by s.last_seq limit 1)"
        )


@lru_cache(maxsize=512)
def _rendered(sql: str) -> str:
    return _TIME.sub(r"\1", sql).replace("monarq.", "")


def finished(coroutine: Awaitable[T]) -> T:
    """Run a coroutine that never waits, without an event loop."""
    assert isinstance(coroutine, Coroutine)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("a handler on SQLite must not wait")
