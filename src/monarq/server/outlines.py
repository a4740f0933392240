"""Counts what a large body holds before it is decoded.

A list of the shortest objects takes thirty times the memory that its text takes, and its length
is only checked when all of it is there. So a large body is first read as its outline, in which
a list is a set of objects that are all equal: it keeps one of them, counts the others, and stops
at the first one too many. What is inside them is skipped. Nothing here says what a body means.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct, inspect

from monarq.errors import InvalidRequestError
from monarq.model import MAX_BATCH

LARGE = 2 << 20
"""Bytes up to which a body may be decoded without looking at it first."""

_LISTS = (
    inspect.ListType,
    inspect.SetType,
    inspect.VarTupleType,
    inspect.DictType,
    inspect.AnyType,
)


class _Count(threading.local):
    """Objects that the body may still have. The codec makes the objects of an outline, so that the
    count cannot be passed to them: it is the thread's, and each check sets it anew."""

    left = 0


_count = _Count()


class _TooManyError(Exception):
    pass


class Counted(Struct, frozen=True):
    """An object in a list that is counted."""

    def __hash__(self) -> int:
        _count.left -= 1
        if _count.left < 0:
            raise _TooManyError
        return 0


class PushOutline(Struct):
    items: set[Counted]


class AckOutline(Struct):
    acknowledgments: set[Counted] | None = None


class OperationOutline(Counted, frozen=True):
    items: set[Counted] | None = None

    __hash__ = Counted.__hash__


class TransactionOutline(Struct, rename="camel"):
    operations: set[OperationOutline]
    required_leases: Raw = Raw(b"")


def outline_check(kind: type[Struct]) -> Callable[[bytes], None]:
    """Refuses large bodies with more than `MAX_BATCH` objects in their lists."""
    decode = msgspec.json.Decoder(kind).decode

    def check(body: bytes) -> None:
        _count.left = MAX_BATCH
        try:
            outline = decode(body)
        except _TooManyError:
            raise InvalidRequestError(
                f"the body has a list of more than {MAX_BATCH} objects"
            ) from None
        except (msgspec.MsgspecError, RecursionError):
            # It is malformed, at the latest where the outline is: decoding it will tell.
            return
        if isinstance(outline, TransactionOutline) and len(outline.required_leases) > LARGE:
            raise InvalidRequestError(f"requiredLeases must be at most {MAX_BATCH}")

    return check


def holds_lists(kind: Any) -> bool:
    """Whether bodies of this type have lists of their own, outside of what is kept raw."""
    return _holds_lists(inspect.type_info(kind), set())


def _holds_lists(info: inspect.Type, seen: set[type]) -> bool:
    if isinstance(info, _LISTS):
        return True
    if isinstance(info, inspect.UnionType):
        return any(_holds_lists(part, seen) for part in info.types)
    if isinstance(info, inspect.Metadata):
        return _holds_lists(info.type, seen)
    if isinstance(info, inspect.StructType) and info.cls not in seen:
        seen.add(info.cls)
        return any(_holds_lists(field.type, seen) for field in info.fields)
    return False
