"""Tokens that say where a page ended: opaque to callers, and good for one kind of list only."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from monarq.errors import InvalidRequestError
from monarq.model import Page

T = TypeVar("T")
K = TypeVar("K")


def position(after: str | None, kind: str, of: type[K]) -> K | None:
    """The key of the last row of the page before; None for the first page."""
    if after is None:
        return None
    named, found = _unpacked(after, of)
    key: K = found
    if named != kind or not _is_storable(key):
        raise not_a_token(after)
    return key


def check_token(after: object) -> None:
    """Check that this is a token, of whatever list."""
    _unpacked(after, Any)


def _unpacked(after: object, of: Any) -> tuple[str, Any]:
    try:
        if not isinstance(after, str):
            raise ValueError
        packed = base64.urlsafe_b64decode(after.encode("ascii") + b"==")
        return msgspec.msgpack.decode(packed, type=tuple[str, of])
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        raise not_a_token(after) from None


def _is_storable(key: object) -> bool:
    """Whether a database can compare its columns with this key."""
    if isinstance(key, tuple):
        return all(map(_is_storable, key))
    if isinstance(key, int):
        return abs(key) <= 2**62
    return not isinstance(key, str) or "\0" not in key


def token(kind: str, key: object) -> str:
    packed = msgspec.msgpack.encode((kind, key), enc_hook=int)  # of times and ids
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode("ascii")


def page(rows: Sequence[T], limit: int, kind: str, key: Callable[[T], object]) -> Page[T]:
    """Of rows that were read with one more than the limit."""
    if len(rows) <= limit:
        return Page(list(rows))
    kept = list(rows[:limit])
    return Page(kept, token(kind, key(kept[-1])))


class PassedOver:
    """How far an offset reaches, counted in partitions by their ids and seqs. Give it each
    partition in turn until it is done."""

    def __init__(self, offset: int, after: str | None) -> None:
        self.left = offset
        self.after = after
        self.done = offset == 0

    def partition(
        self, partition_id: int, first_seq: int, start: int, last_seq: int, deleted: int
    ) -> None:
        """Pass over a partition's messages from `start` on, as far as the offset reaches. Deleted
        messages are no rows: a partition with some is passed over as a whole or not at all."""
        kept = last_seq - start + 1
        if kept <= 0:
            return
        rows = kept - deleted
        if deleted and (start > first_seq or rows > self.left):
            self.done = True
            return
        passed = min(rows, self.left)
        self.left -= passed
        end = last_seq if passed == rows else start + passed - 1
        self.after = token("messages", (partition_id, end))
        self.done = self.left == 0

    def result(self, *, at_end: bool) -> tuple[str | None, int]:
        """The token and the rows left; at the end of the queue no rows are left."""
        return self.after, 0 if at_end else self.left


def not_a_token(after: object) -> InvalidRequestError:
    return InvalidRequestError(f"{str(after)[:64]!r} is not where a page of this list ended")
