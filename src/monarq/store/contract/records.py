"""What is kept beside the queues: output of attempts, settings."""

from __future__ import annotations

import abc

from monarq.model import OutputPart


class KeepingRecords(abc.ABC):
    @abc.abstractmethod
    async def append_output(
        self, item_id: str, attempt: int, data: bytes, *, commands: bool = True
    ) -> int:
        """Note what a running attempt of an item printed; answers how many bytes that makes.

        For those who watch it run: what is to stay belongs in the ack's `result`. Refused past
        `MAX_OUTPUT_BYTES`; removed after 7 days. Without `commands` the caller may not work on
        shell commands: `ForbiddenError` if the item's queue runs commands.
        """

    @abc.abstractmethod
    async def read_output(
        self, item_id: str, attempt: int, *, start: int = 0, max_bytes: int = 1 << 20
    ) -> OutputPart:
        """From that byte on; nothing, if there is nothing (yet)."""

    @abc.abstractmethod
    async def get_settings(self) -> dict[str, str]:
        """Settings that all processes on this store share."""

    @abc.abstractmethod
    async def set_setting(self, key: str, value: str | None) -> None:
        """Set, or with None remove."""
