"""Burying messages, and retrying dead ones."""

from __future__ import annotations

from msgspec import Struct

from monarq.wire.shown import NameFilter, PartitionIdText


class MessageRetried(Struct, frozen=True, kw_only=True, rename="camel"):
    success: bool
    redriven: int
    """Dead letters that went back to their queue, one a group that had failed on it."""
    partition_id: PartitionIdText
    transaction_id: str


class BuryQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    consumer_group: NameFilter | None = None
    """Whose lease it is under; `__QUEUE_MODE__` if it is left out."""


class MessageBuried(Struct, frozen=True, kw_only=True, rename="camel"):
    success: bool
    partition_id: PartitionIdText
    transaction_id: str
