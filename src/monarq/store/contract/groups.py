"""Groups: where they are, and moving them."""

from __future__ import annotations

import abc

from monarq.model import Cursor, Group, Page, Seek, StartFrom


class KeepingGroups(abc.ABC):
    @abc.abstractmethod
    async def list_groups(
        self,
        *,
        queue: str | None = None,
        group: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Group]:
        """One row a group and queue, by queue and group name, with its lag."""

    @abc.abstractmethod
    async def list_cursors(
        self, queue: str, group: str, *, limit: int = 100, after: str | None = None
    ) -> Page[Cursor]:
        """The group's place in each partition of the queue, by partition id."""

    @abc.abstractmethod
    async def subscribe(
        self,
        group: str,
        start: StartFrom | int,
        *,
        queue: str | None = None,
        namespace: str | None = None,
        task: str | None = None,
    ) -> int:
        """Say where a group begins before it first pops; as a first pop does.

        Answers the point in time from which messages are for the group (0: from the
        beginning). What was said first holds, until the group is deleted.
        """

    @abc.abstractmethod
    async def seek(self, request: Seek) -> int:
        """Move a group's cursors; its leases there end, and what was acked is forgotten.

        Return how many messages are before the group now, in the partitions it moved. A group
        that does not exist in the queue is made first, as by `subscribe`.
        Raise `NotFoundError` if the queue or the partition does not exist.
        """

    @abc.abstractmethod
    async def delete_group(
        self, group: str, *, queue: str | None = None, forget_start: bool = True
    ) -> int:
        """Remove the group from one queue, or everywhere; from how many queues it went.

        With `forget_start` its next pop says anew where it begins; otherwise it begins
        again where it first began.
        """
