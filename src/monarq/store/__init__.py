"""Where queues are kept: one contract, SQLite and PostgreSQL behind it.

May import the nouns (`model`, `errors`, `clock`, `ids`, `crypto`), nothing above.
"""

from monarq.store.contract import Store
from monarq.store.opening import open_store

__all__ = ["Store", "open_store"]
