"""Where a pipeline reads and writes, and with what right. Goes to workers, not into logs."""

from __future__ import annotations

from dataclasses import dataclass, field

from monarq.errors import InvalidRequestError
from monarq.spark.access import Access, open_access

_SCHEMA = "monarq"


@dataclass(frozen=True)
class Place:
    url: str
    token: str | None = field(default=None, repr=False)
    encryption_key: str | None = field(default=None, repr=False)
    """Several with commas between: the first one seals, all open."""
    schema: str = _SCHEMA
    """PostgreSQL's."""

    def access(self) -> Access:
        return open_access(
            self.url, token=self.token, encryption_key=self.encryption_key, schema=self.schema
        )

    @property
    def options(self) -> dict[str, str]:
        """For the data source."""
        if self.schema != _SCHEMA:
            raise InvalidRequestError(
                f"the data source knows no other schema than {_SCHEMA!r}; give --url instead"
            )
        named = {"url": self.url, "token": self.token, "encryptionKey": self.encryption_key}
        return {name: value for name, value in named.items() if value is not None}
