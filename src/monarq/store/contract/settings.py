"""Settings that all processes on a store share."""

from __future__ import annotations

import abc


class KeepingSettings(abc.ABC):
    @abc.abstractmethod
    async def get_settings(self) -> dict[str, str]:
        """Return all settings."""

    @abc.abstractmethod
    async def set_setting(self, key: str, value: str | None) -> None:
        """Set, or with None remove."""
