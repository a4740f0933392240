"""What is to be stored, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from io import BytesIO
from itertools import repeat
from typing import final, overload

from msgspec import Raw, Struct

from monarq.ids import message_id
from monarq.model.limits import DEFAULT_PARTITION


class PushStatus(StrEnum):
    QUEUED = "queued"
    DUPLICATE = "duplicate"
    BUFFERED = "buffered"


class PushItem(Struct, frozen=True, rename="camel", gc=False):
    """One message or item to store. `payload` and `headers` are JSON, kept as they come."""

    queue: str
    payload: bytes
    partition: str = DEFAULT_PARTITION
    transaction_id: str | None = None
    trace_id: str | None = None
    namespace: str | None = None
    """With `task`: labels a queue that this push creates; ignored if it exists."""
    task: str | None = None
    headers: bytes | None = None

    # Work queues only.
    priority: int | None = None
    run_at: int | None = None
    delay_seconds: float | None = None
    max_attempts: int | None = None
    backoff_base: float | None = None
    attempts: int | None = None
    """Attempts that the item has used up elsewhere; only an import sets it."""


@final
class PushColumns(Sequence[PushItem]):
    """Messages for one partition that have payloads and perhaps transaction ids, and no more. The
    items themselves are made when somebody looks at them.

    Whether items are such is asked by `type`: of an abstract class, `isinstance` takes as long as
    all other checks of a small push."""

    __slots__ = ("_items", "data", "partition", "queue", "sizes", "transaction_ids")

    def __init__(
        self,
        queue: str,
        partition: str,
        payloads: Sequence[bytes | Raw],
        transaction_ids: Sequence[str] = (),
    ) -> None:
        """`transaction_ids`: as many as there are payloads, or none."""
        self.queue = queue
        self.partition = partition
        self.data = b"".join(payloads)
        """The payloads in one piece."""
        self.sizes = list(map(len, payloads))
        self.transaction_ids = transaction_ids
        self._items: list[PushItem] | None = None

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, index: int) -> PushItem: ...
    @overload
    def __getitem__(self, index: slice) -> list[PushItem]: ...
    def __getitem__(self, index: int | slice) -> PushItem | list[PushItem]:
        return self._made()[index]

    def __iter__(self) -> Iterator[PushItem]:
        return iter(self._made())

    def _made(self) -> list[PushItem]:
        if self._items is None:
            payloads = map(BytesIO(self.data).read, self.sizes)
            ids = self.transaction_ids or repeat(None, len(self.sizes))
            self._items = [
                PushItem(self.queue, payload, self.partition, transaction_id)
                for payload, transaction_id in zip(payloads, ids, strict=True)
            ]
        return self._items


class Push(Struct, frozen=True):
    """All of it or nothing."""

    items: Sequence[PushItem]
    producer: str | None = None
    commands: bool = False
    """Whether the items are shell commands: only queues that run commands take them, and those
    take nothing else. Whoever sets it has made sure that the caller may."""


class Pushed(Struct, frozen=True, gc=False):
    status: PushStatus
    queue: str
    partition_id: int
    seq: int
    transaction_id: str
    trace_id: str | None = None

    @property
    def message_id(self) -> str:
        return message_id(self.partition_id, self.seq)
