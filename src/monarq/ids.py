"""How things are named to the outside: messages, items and leases.

A message or item is its partition and its seq, so its id is `<partition>-<seq>`
and takes no room in the store. A message pushed without a transaction id is
given this id as its transaction id: unique by construction, so nothing needs to
be checked or indexed. A lease id is a number, unique in the store for ever, and
a random token that keeps it from being guessed. A token may end in the place of
the lease, a partition and a group, where that is how its store finds it.
"""

from __future__ import annotations

import re
import secrets
from functools import lru_cache
from typing import Annotated

from msgspec import Meta

from monarq.errors import LeaseUnknownError


class NumberText(int):
    """An id that is a number in Python and text in JSON, where large numbers lose digits."""


class LongNumberText(NumberText):
    """A `NumberText` of up to 63 bits, as PostgreSQL's ids of queues are."""


class NumberOrText(NumberText):
    """A `NumberText` that requests may also give as a number."""


MessageIdText = Annotated[
    str,
    Meta(
        pattern="^[1-9][0-9]{0,17}-[1-9][0-9]{0,17}$",
        description="the partition's number and the seq, such as 12-345",
    ),
]

NO_SUCH_LEASE = "there is no such lease: it never was, or it has ended"

_MESSAGE_ID = re.compile(r"([1-9][0-9]{0,17})-([1-9][0-9]{0,17})", re.ASCII)
_LEASE_ID = re.compile(
    r"([1-9][0-9]{0,17})-([0-9a-f]{16}(?:-[1-9][0-9]{0,17}-[1-9][0-9]{0,17})?)", re.ASCII
)
_NUMBERS = [str(number) for number in range(1000)]
_LAST_DIGITS = [f"{number:03}" for number in range(1000)]


def message_id(partition_id: int, seq: int) -> str:
    return f"{partition_id}-{seq}"


def message_ids(partition_id: int, first_seq: int, count: int) -> list[str]:
    """The ids of messages in a row. Of a thousand the last three digits are all that differs, and
    to append those takes half as long as to write each number."""
    end = first_seq + count
    ids: list[str] = []
    while first_seq < end:
        thousands, start = divmod(first_seq, 1000)
        head = f"{partition_id}-{thousands or ''}"
        digits = _LAST_DIGITS if thousands else _NUMBERS
        ids += [head + each for each in digits[start : start + end - first_seq]]
        first_seq += 1000 - start
    return ids


def parse_message_id(text: str) -> tuple[int, int] | None:
    """The partition and seq, or None if this is not an id that Monarq made."""
    match = _MESSAGE_ID.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else None


def new_lease_token() -> str:
    return secrets.token_hex(8)


def new_lease_tokens(count: int) -> list[str]:
    """Many at once, which is cheaper."""
    digits = secrets.token_hex(8 * count)
    return [digits[start : start + 16] for start in range(0, 16 * count, 16)]


def placed_token(token: str, partition_id: int, group_id: int) -> str:
    """The token of a lease on one partition, which says whose."""
    return f"{token}-{partition_id}-{group_id}"


def place_of(token: str) -> tuple[int, int] | None:
    """The partition and group that a token names, if it does."""
    _, *place = token.split("-")
    return (int(place[0]), int(place[1])) if place else None


def lease_id(number: int, token: str) -> str:
    return f"{number}-{token}"


@lru_cache(maxsize=4096)
def parse_lease_id(text: str) -> tuple[int, str]:
    match = _LEASE_ID.fullmatch(text)
    if match is None:
        raise LeaseUnknownError(NO_SUCH_LEASE)
    return int(match[1]), match[2]


def is_lease_id(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(parse_lease_id(value))
    except LeaseUnknownError:
        return False
