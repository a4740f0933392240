"""Page tokens: where a listing stopped, as an opaque string."""

from __future__ import annotations

import base64
import binascii
from typing import TypeVar

import msgspec

from monarq.errors import InvalidRequestError

T = TypeVar("T")


def token(place: object) -> str:
    """The token for a place: the sort key of the last row."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def place(after: str | None, kind: type[T]) -> T | None:
    """The place that a token names; None if there is no token."""
    if after is None:
        return None
    try:
        padded = after + "=" * (-len(after) % 4)
        return msgspec.json.decode(base64.b64decode(padded, b"-_", validate=True), type=kind)
    except (binascii.Error, msgspec.DecodeError, UnicodeError, TypeError, ValueError):
        raise InvalidRequestError("after must be the `next` of an earlier page") from None
