"""Dead letters: to look at them, put them back or remove them."""

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

    @abc.abstractmethod
    async def redrive(
        self,
        which: DeadLetterFilter,
        *,
        to: str | None = None,
        limit: int = 1000,
        commands: bool = True,
    ) -> int:
        """Put dead letters back into their queue, or into the queue `to`; how many.

        Back in its own queue a message goes to the end of its partition, for the group that
        had failed on it alone, and an item starts over with its attempts forgotten. In
        another queue it is a new push. Oldest first, each atomically: gone from the dead
        letters exactly when it is back in a queue.

        Without `commands` the caller may not work on shell commands: `ForbiddenError`, and nothing
        is redriven, if a dead letter that matches is of a queue that runs commands.
        """

    @abc.abstractmethod
    async def purge_dead_letters(self, which: DeadLetterFilter, *, commands: bool = True) -> int:
        """Remove dead letters; return how many. `commands` as in `redrive`."""
