"""Pop, in and out."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from monarq.wire.ack import AckAnswer
from monarq.wire.fields import Name
from monarq.wire.shown import LabelFilter

_Batch = Annotated[
    int, Meta(ge=1, le=2**53, description="messages at most; more than 10,000 count as 10,000")
]
_Partitions = Annotated[
    int, Meta(ge=1, le=2**53, description="partitions at most; more than 1,000 count as 1,000")
]


class PopQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    batch: _Batch | None = None
    wait: bool = False
    timeout: Annotated[
        float, Meta(ge=0, le=1e12, description="milliseconds to wait; at most an hour counts")
    ] = 30_000.0
    consumer_group: Name | None = None
    auto_ack: bool = False
    partitions: _Partitions | None = None
    subscription_mode: (
        Annotated[
            str,
            Meta(
                max_length=64,
                description="`new` or `new-only`: only what is pushed from now on; "
                "`all`, and any other text, as Queen has it: from the beginning",
            ),
        ]
        | None
    ) = None
    subscription_from: (
        Annotated[str, Meta(description="`now`, or a time in ISO 8601; UTC if it names no zone")]
        | None
    ) = None
    lease_time: Annotated[float, Meta(ge=0.001, le=7 * 86_400, description="seconds")] | None = None
    consumer: Annotated[Name, Meta(description="who consumes, for the logs of deliveries")] | (
        None
    ) = None
    namespace: LabelFilter | None = None
    task: LabelFilter | None = None
    autopilot: Annotated[
        bool, Meta(description="let the broker choose `batch` and `partitions`")
    ] = False
    conflation: Annotated[bool, Meta(description="refused: there is no such thing here")] = False

    unadvised: ClassVar[frozenset[str]] = frozenset({"autopilot", "conflation"})
    """For Queen's clients, who know them."""


class PoppedMessage(Struct, rename="camel", gc=False):
    id: str
    transaction_id: str
    trace_id: str | None
    data: Annotated[Raw, Meta(description="the payload as it was pushed")]
    created_at: str
    queue: str
    partition: str
    partition_id: str
    lease_id: str | None
    consumer_group: str
    seq: int
    attempts: int
    retry_count: int
    producer_sub: str | None
    traceparent: str | UnsetType = UNSET
    headers: Annotated[Raw, Meta(description="such as where a dead letter came from")] | (
        UnsetType
    ) = UNSET
    priority: int | UnsetType = UNSET
    max_attempts: int | UnsetType = UNSET
    is_command: (
        Annotated[bool, Meta(description="true if the item was enqueued as a shell command")]
        | UnsetType
    ) = UNSET


class Autopilot(Struct):
    batch: int
    partitions: int


class PopAnswer(Struct, rename="camel"):
    success: bool
    queue: str
    partition: str
    partition_id: str
    lease_id: str | None
    consumer_group: str
    messages: list[PoppedMessage]
    autopilot: Autopilot | UnsetType = UNSET


class AckedPopAnswer(Struct, rename="camel"):
    """Of acks and a pop in one request: the answer to each ack, in order, and what the pop found,
    which may be nothing."""

    acknowledged: list[AckAnswer]
    success: bool
    queue: str | None
    partition: str | None
    partition_id: str | None
    lease_id: str | None
    consumer_group: str
    messages: list[PoppedMessage]
    autopilot: Autopilot | UnsetType = UNSET


class PopRefused(Struct):
    """The acks were carried out, and the pop was not."""

    error: str
    code: str
    acknowledged: list[AckAnswer]
