"""The numbers of leases: they rise through the whole store, whichever process gives them.

Taken in blocks, so that few pops write where the last one is kept. A block is good only while it
is the last that anybody has taken: then its numbers are higher than all that were given.
"""

from __future__ import annotations

import sqlite3

_BLOCK = 1000


class LeaseNumbers:
    """Those that this process holds. Whoever rolls back must clear it: the block may be lost."""

    def __init__(self) -> None:
        self._given = self._last = 0

    def clear(self) -> None:
        self._given = self._last = 0

    def check(self, db: sqlite3.Connection) -> None:
        """Before the first number of a transaction: others may have taken a block since."""
        if _last_taken(db) != self._last:
            self.clear()

    def give(self, db: sqlite3.Connection) -> int:
        if self._given == self._last:
            self._given = _last_taken(db)
            self._last = self._given + _BLOCK
            db.execute("update lease_numbers set last = ?", (self._last,))
        self._given += 1
        return self._given


def _last_taken(db: sqlite3.Connection) -> int:
    row: tuple[int] = db.execute("select last from lease_numbers").fetchone()
    return row[0]
