"""What a store tells those who watch it: the part of the contract that the dashboard needs.

Every call here is bounded, whatever the backlog and however many queues there are, and but for
`skip` none of them changes anything. What is looked at row by row is looked at up to a limit.
"""

from __future__ import annotations

import abc

from monarq.model import (
    DeadLetterError,
    DeadLetterFilter,
    Delivery,
    GroupFlow,
    Item,
    ItemState,
    Latency,
    Page,
    QueueFlow,
    SeekPreview,
    Standing,
)
from monarq.operations.groups import Seek

MOST_FLOWS = 10_000
MOST_LOGGED = 50_000
"""Rows of the delivery log that one call looks at."""
MOST_LETTERS = 100_000
"""Dead letters that one call looks at."""
MOST_PARTITIONS = 100_000
"""Partitions of a queue in which one call looks for a transaction id."""


class Watching(abc.ABC):
    @abc.abstractmethod
    async def queue_flows(
        self,
        *,
        queue: str | None = None,
        namespace: str | None = None,
        task: str | None = None,
        limit: int = 1000,
        after: str | None = None,
    ) -> Page[QueueFlow]:
        """The counters of all queues by id, up to `MOST_FLOWS` a page; or of one, or of those
        with these labels."""

    @abc.abstractmethod
    async def group_flows(
        self, *, queue: str | None = None, limit: int = 1000, after: str | None = None
    ) -> Page[GroupFlow]:
        """The counters of all groups by id, up to `MOST_FLOWS` a page; or of one queue."""

    @abc.abstractmethod
    async def list_standings(
        self, queue: str, group: str | None, *, limit: int = 100, after: str | None = None
    ) -> Page[Standing]:
        """The partitions of an ordered queue by id, as a group sees them; without one, as a
        group would that begins at the beginning."""

    @abc.abstractmethod
    async def standings_of(self, partition_id: int) -> dict[str, Standing]:
        """A partition of an ordered queue as each group sees it, by the group's name."""

    @abc.abstractmethod
    async def list_failing(self, queue: str, group: str, *, limit: int = 100) -> list[Standing]:
        """Partitions whose next message has failed or run out before, most attempts first."""

    @abc.abstractmethod
    async def deliveries_of(
        self, partition_id: int, seq: int, *, limit: int = 100
    ) -> list[Delivery]:
        """What the delivery log has of a message, newest first: among the rows since it was
        pushed and the newest, `MOST_LOGGED` of each."""

    @abc.abstractmethod
    async def preview_seek(self, request: Seek) -> SeekPreview:
        """What `seek` would do; its errors are the same."""

    @abc.abstractmethod
    async def skip(self, queue: str, group: str, partition: str, seq: int, error: str) -> int:
        """Make the next message of a partition dead for a group, as if it had used up its
        retries. A lease on the partition ends, and what was acked stays acked. Answers what is
        before the group there now. `ConflictError` if another message is next."""

    @abc.abstractmethod
    async def dead_letter_errors(
        self, which: DeadLetterFilter, *, limit: int = 100
    ) -> list[DeadLetterError]:
        """What the newest `MOST_LETTERS` that match died of, the most frequent first."""

    @abc.abstractmethod
    async def latencies(
        self, since: int, until: int, *, queue: str | None = None, samples: int = 1000
    ) -> list[Latency]:
        """An even sample of the answers to messages of ordered queues between two times, as far
        as the messages are kept, oldest first."""

    @abc.abstractmethod
    async def find_messages(self, queue: str, transaction_id: str) -> list[tuple[int, int]]:
        """Partition ids and seqs of the messages or items of a queue with this transaction id."""

    @abc.abstractmethod
    async def newest_items(
        self,
        queue: str,
        *,
        state: ItemState | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Item]:
        """As `list_items`, the other way round."""
