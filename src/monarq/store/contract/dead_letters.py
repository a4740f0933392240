"""Dead letters: what the broker composes their list of."""

from __future__ import annotations

import abc

from monarq.model import DeadLetter, DeadLetterFilter, Page


class KeepingDeadLetters(abc.ABC):
    @abc.abstractmethod
    async def list_dead_letters(
        self, which: DeadLetterFilter, *, limit: int = 100, after: str | None = None
    ) -> Page[DeadLetter]:
        """Newest first."""

    @abc.abstractmethod
    async def count_dead_letters(self, which: DeadLetterFilter) -> int: ...
