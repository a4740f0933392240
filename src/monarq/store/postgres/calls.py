"""What the parts of the store share: each says only what runs."""

from __future__ import annotations

from monarq.crypto import Cipher
from monarq.store.postgres.catalog import Catalog
from monarq.store.postgres.database import Database


class Calls:
    def __init__(self, database: Database, cipher: Cipher | None) -> None:
        self._database = database
        self._cipher = cipher
        self._catalog = Catalog(database)
