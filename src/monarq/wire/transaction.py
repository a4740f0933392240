"""Transactions, in and out. What else Queen's newest clients may send with one (`kv`, `timers`)
is unknown here and so refused, since the rest may depend on it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from monarq.model import MAX_BATCH
from monarq.wire.ack import AckAnswer, AckBody
from monarq.wire.fields import Name
from monarq.wire.push import PushedItem, PushItemBody


class PushOperation(Struct, rename="camel", forbid_unknown_fields=True, tag="push"):
    items: Annotated[list[PushItemBody], Meta(min_length=1, max_length=MAX_BATCH)]


class AckOperation(AckBody, tag="ack"):
    pass


class TransactionBody(Struct, rename="camel", forbid_unknown_fields=True):
    operations: Annotated[
        list[PushOperation | AckOperation], Meta(min_length=1, max_length=MAX_BATCH)
    ]
    required_leases: Annotated[list[Name], Meta(max_length=MAX_BATCH)] | None = None


class PushResult(Struct, rename="camel", tag="push"):
    index: int
    success: bool
    items: list[PushedItem]


class AckResult(AckAnswer, kw_only=True, tag="ack"):
    index: int


class TransactionAnswer(Struct, rename="camel"):
    success: bool
    transaction_id: str
    results: list[PushResult | AckResult]
