"""Records beside the queues, in and out."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Raw, Struct

from monarq.wire.paging import PageAnswer
from monarq.wire.shown import TimeText


class RecordBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    value: Annotated[Raw, Meta(description="any JSON value, 1 MiB at most")]
    keep_seconds: Annotated[float, Meta(ge=0, le=10 * 365 * 86_400)] | None = None
    """It is gone that long after; null keeps it."""
    only_new: bool = False
    """One that is there stays as it is, and is the answer."""


class RecordRow(Struct, frozen=True, kw_only=True, rename="camel"):
    kind: str
    key: str
    value: Annotated[Raw, Meta(description="as it was put")]
    updated_at: TimeText
    expires_at: TimeText | None


class RecordsAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    records: list[RecordRow]


class RecordDeleted(Struct, frozen=True, kw_only=True, rename="camel"):
    deleted: bool
    """False: there was none."""
