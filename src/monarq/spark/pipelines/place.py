"""Where a pipeline reads and writes, and with what right. Goes to workers, not into logs."""

from __future__ import annotations

from dataclasses import dataclass, field

from monarq.spark.access import Access, open_access


@dataclass(frozen=True)
class Place:
    url: str
    token: str | None = field(default=None, repr=False)
    encryption_key: str | None = field(default=None, repr=False)

    def access(self) -> Access:
        return open_access(self.url, token=self.token, encryption_key=self.encryption_key)

    @property
    def options(self) -> dict[str, str]:
        """For the data source."""
        named = {"url": self.url, "token": self.token, "encryptionKey": self.encryption_key}
        return {name: value for name, value in named.items() if value is not None}
