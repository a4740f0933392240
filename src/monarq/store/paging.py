"""Tokens that say where a page ended: opaque to callers, and good for one kind of list only."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from monarq.errors import InvalidRequestError
from monarq.model import Page

T = TypeVar("T")
K = TypeVar("K")


def position(after: str | None, kind: str, of: type[K]) -> K | None:
    """The key of the last row of the page before; None for the first page."""
    if after is None:
        return None
    try:
        if not isinstance(after, str):
            raise ValueError
        packed = base64.urlsafe_b64decode(after.encode("ascii") + b"==")
        named, key = msgspec.msgpack.decode(packed, type=tuple[str, of])  # type: ignore[valid-type]
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        raise _not_a_token(after) from None
    if named != kind or not _is_storable(key):
        raise _not_a_token(after)
    return key


def _is_storable(key: object) -> bool:
    """Whether a database can compare its columns with this key."""
    if isinstance(key, tuple):
        return all(map(_is_storable, key))
    if isinstance(key, int):
        return abs(key) <= 2**62
    return not isinstance(key, str) or "\0" not in key


def token(kind: str, key: object) -> str:
    packed = msgspec.msgpack.encode((kind, key))
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode("ascii")


def page(rows: Sequence[T], limit: int, kind: str, key: Callable[[T], object]) -> Page[T]:
    """Of rows that were read with one more than the limit."""
    if len(rows) <= limit:
        return Page(list(rows))
    kept = list(rows[:limit])
    return Page(kept, token(kind, key(kept[-1])))


def _not_a_token(after: object) -> InvalidRequestError:
    return InvalidRequestError(f"{str(after)[:64]!r} is not where a page of this list ended")
