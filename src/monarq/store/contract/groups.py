"""Groups: where they are, and moving them."""

from __future__ import annotations

import abc

from monarq.model import StartFrom


class KeepingGroups(abc.ABC):
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
