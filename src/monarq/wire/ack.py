"""Ack, one or many, in and out."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from monarq.model import MAX_BATCH
from monarq.times import Time
from monarq.wire.fields import Name, PartitionId, Text

Status = Literal["completed", "failed", "retry", "release", "dead", "success", "dlq"]
"""`success` is taken for `completed`, and `dlq` for `dead`."""


class AckBody(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """Answers one message, or, with a `leaseId` alone, all that has no answer under it."""

    transaction_id: Name | None = None
    partition_id: PartitionId | None = None
    lease_id: Name | None = None
    status: Status | None = None
    """`completed` if it is left out."""
    error: Text | None = None
    consumer_group: Name | None = None
    retry_at: Time | None = None
    result: Annotated[Raw, Meta(description="work queues: what the attempt produced")] | (
        UnsetType
    ) = UNSET


class AckBatchBody(Struct, rename="camel", forbid_unknown_fields=True):
    """Either `acknowledgments`, or `leaseId` and `status` for a whole lease."""

    acknowledgments: Annotated[list[AckBody], Meta(max_length=MAX_BATCH)] | None = None
    consumer_group: Name | None = None
    lease_id: Name | None = None
    status: Status | None = None
    error: Text | None = None
    retry_at: Time | None = None


class AckAnswer(Struct, rename="camel", gc=False):
    success: bool
    transaction_id: str | None
    error: str | None
    queue_name: str | None
    partition_name: str | None
    lease_released: bool
    dlq: bool
    code: Annotated[str, Meta(description="a stable word, if it was refused")] | UnsetType = UNSET
    count: Annotated[int, Meta(description="messages answered, if by lease")] | UnsetType = UNSET
