"""What running attempts print, in and out. Bytes travel as base64: output may be anything."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from monarq.ids import MessageIdText
from monarq.model import MAX_OUTPUT_BYTES

AttemptNumber = Annotated[int, Meta(ge=1, le=2**31 - 1, description="counted from 1")]


class OutputBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    attempt: AttemptNumber
    data: Annotated[bytes, Meta(max_length=MAX_OUTPUT_BYTES, description="base64")]


class OutputAppended(Struct, frozen=True, kw_only=True, rename="camel"):
    id: MessageIdText
    attempt: int
    size: int
    """Bytes that the attempt has printed by now."""


class OutputQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    attempt: AttemptNumber
    start: Annotated[int, Meta(ge=0, le=MAX_OUTPUT_BYTES, description="the byte to begin at")] = 0
    max_bytes: Annotated[int, Meta(ge=1, le=MAX_OUTPUT_BYTES)] = 1 << 20


class OutputAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    id: MessageIdText
    attempt: int
    data: Annotated[str, Meta(description="base64")]
    next: int
    """Where to go on."""
