"""Registers the handlers that are written for PostgreSQL alone."""

from __future__ import annotations

from typing import NamedTuple

from monarq.crypto import Cipher
from monarq.operations.handlers import Handlers
from monarq.store.postgres.catalog import Catalog
from monarq.store.postgres.database import Database


class Tools(NamedTuple):
    """What a handler gets."""

    database: Database
    catalog: Catalog
    cipher: Cipher | None
    commands: bool = True
    """Whether the caller may work on shell commands."""


handles: Handlers[Tools] = Handlers()
