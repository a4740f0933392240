"""The store in one SQLite file, or in memory.

May import the nouns and the store contract; nothing outside this package may import its
modules, only `SqliteStore`.
"""

from monarq.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
