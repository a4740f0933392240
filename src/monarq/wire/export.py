"""Export: what can be read, and which part of it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from monarq.wire.paging import PageAnswer, PageQuery
from monarq.wire.shown import NameFilter, PartitionIdText

Seq = Annotated[int, Meta(ge=1, le=2**53)]


class PlanQuery(PageQuery, frozen=True, kw_only=True, rename="camel"):
    queue: NameFilter


class PlanRow(Struct, frozen=True, kw_only=True, rename="camel"):
    partition_id: PartitionIdText
    partition: str
    first_seq: int
    last_seq: int
    """Less than `firstSeq` if nothing is kept."""


class PlanAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    queue: str
    partitions: list[PlanRow]


class ReadQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    partition_id: PartitionIdText
    from_: Seq = field(default=1, name="from")
    """The first seq."""
    to: Seq | None = None
    """The last seq, included; what is the last one when the reading begins, if left out."""
