"""Items of work queues, in and out."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from monarq.model import AttemptOutcome, ItemState
from monarq.wire.messages import Headers, Payload
from monarq.wire.paging import After, PageAnswer, PageQuery
from monarq.wire.shown import MessageIdText, NameFilter, PartitionIdText, TimeText


class ItemsQuery(PageQuery, frozen=True, kw_only=True, rename="camel"):
    queue: NameFilter
    state: ItemState | None = None
    transaction_id: NameFilter | None = None
    order: Literal["pushed", "next"] = "pushed"
    """`next`: ready items in the order in which they will be leased; one page."""
    pivot: After | None = None
    """Another name for `after`."""


class ItemRow(Struct, frozen=True, kw_only=True, rename="camel"):
    id: MessageIdText
    queue: str
    partition_id: PartitionIdText
    seq: int
    transaction_id: str
    state: ItemState
    priority: int
    effective_priority: int
    attempts: int
    max_attempts: int
    backoff_base: float
    created_at: TimeText
    run_at: TimeText | None
    lease_until: TimeText | None
    finished_at: TimeText | None
    consumer: str | None
    error: str | None
    trace_id: str | None
    producer_sub: str | None
    data: Payload
    headers: Headers | UnsetType = UNSET


class ItemsAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    items: list[ItemRow]


class AttemptRow(Struct, frozen=True, kw_only=True, rename="camel"):
    attempt: int
    started_at: TimeText
    ended_at: TimeText
    outcome: AttemptOutcome
    consumer: str | None
    error: str | None
    result: Raw | UnsetType = UNSET


class ItemDetail(ItemRow, frozen=True, kw_only=True, rename="camel"):
    history: list[AttemptRow]
    """Its finished attempts, oldest first."""
