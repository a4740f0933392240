"""Registers the handlers that are written for SQLite alone."""

from __future__ import annotations

from monarq.operations.handlers import Handlers
from monarq.store.sqlite.session import Session

handles: Handlers[Session] = Handlers()
