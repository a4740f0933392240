"""What a handler that serves both engines gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from monarq.operations.handlers import Handlers


class Queries(Protocol):
    def now(self) -> int | None:
        """Return the time for `monarq.time`; None lets PostgreSQL's clock decide."""

    async def fetch(self, sql: str, *args: Any) -> Sequence[Any]:
        """Run one statement and return its rows."""


handles: Handlers[Queries] = Handlers()
