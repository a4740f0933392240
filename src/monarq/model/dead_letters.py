"""What ran out of attempts."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field, structs

from monarq.ids import NumberText
from monarq.times import Micros


class DeadLetter(Struct, frozen=True, rename="camel", kw_only=True):
    """A copy of a dead message or item. It outlives the original."""

    id: NumberText
    message_id: str
    transaction_id: str
    partition_id: NumberText
    queue: str
    partition: str
    group: str = field(name="consumerGroup")
    error: str = field(name="errorMessage")
    retry_count: int = 0
    """One less than `attempts`, as Queen names it."""
    attempts: int
    raw: Annotated[Raw, Meta(description="the payload, as it was pushed")] = field(name="data")
    trace_id: str | None = None
    producer: str | None = field(name="producerSub", default=None)
    created_at: Micros
    failed_at: Micros
    raw_headers: (
        Annotated[Raw, Meta(description="its headers, an object, if it has any")] | UnsetType
    ) = field(name="headers", default=UNSET)

    def __post_init__(self) -> None:
        structs.force_setattr(self, "retry_count", max(0, self.attempts - 1))

    @property
    def seq(self) -> int:
        return int(self.message_id.partition("-")[2])

    @property
    def payload(self) -> bytes:
        return bytes(self.raw)

    @property
    def headers(self) -> bytes | None:
        return None if self.raw_headers is UNSET else bytes(self.raw_headers)


class DeadLetterFilter(Struct, frozen=True, kw_only=True):
    """All that are given must match; `ids` alone picks single ones."""

    queue: str | None = None
    group: str | None = None
    partition: str | None = None
    failed_from: int | None = None
    failed_to: int | None = None
    error: str | None = None
    """The first line of the error, its first `ERROR_KEY_LENGTH` characters."""
    ids: list[int] | None = None


class DeadLetterError(Struct, frozen=True, kw_only=True):
    """Dead letters of a queue and group that died of the same."""

    queue: str
    group: str
    error: str
    """As in `DeadLetterFilter`."""
    count: int
    oldest_at: int
    newest_at: int
    newest_id: int
