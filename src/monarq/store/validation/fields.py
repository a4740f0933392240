"""Single fields of a request: names, numbers, times, texts, JSON."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

import msgspec

from monarq.crypto import SEALS
from monarq.errors import InvalidRequestError
from monarq.model import MAX_NAME_LENGTH, MAX_PAYLOAD_BYTES
from monarq.times import MAX_TIME

# Surrogates cannot be stored as UTF-8, control characters cannot be shown or typed.
_BAD_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# PostgreSQL's text cannot hold NUL; errors and headers may well have line breaks.
_BAD_TEXT = re.compile(r"[\x00\ud800-\udfff]")
_MARK = re.compile(r"[\x20-\x7e]{1,64}")
MAX_ERROR_LENGTH = 65_536
MAX_LEASE_SECONDS = 7 * 86_400


def check_name(value: object, field: str) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_NAME_LENGTH:
        raise InvalidRequestError(f"{field} must be text of 1 to {MAX_NAME_LENGTH} characters")
    if _BAD_NAME.search(value):
        raise InvalidRequestError(f"{field} must not contain control characters")


def check_names(values: Collection[str], field: str) -> None:
    """Many at once: most are plainly good, and that can be seen of all together."""
    if not _are_plainly_good(values):
        for value in values:
            check_name(value, field)


def _are_plainly_good(values: Collection[str]) -> bool:
    try:
        together = "".join(values)
    except TypeError:
        return False
    lengths = set(map(len, values))
    is_short = min(lengths) >= 1 and max(lengths) <= MAX_NAME_LENGTH
    return is_short and together.isascii() and together.isprintable()


@lru_cache(maxsize=4096)
def _check_seen_name(value: str, field: str) -> None:
    check_name(value, field)


def check_common_name(value: object, field: str) -> None:
    """For names that come again and again: those of groups and leases."""
    if isinstance(value, str):
        _check_seen_name(value, field)
    else:
        check_name(value, field)


def check_label(value: object, field: str) -> None:
    """A name that may be left empty."""
    if value != "":
        check_name(value, field)


def check_int(value: object, field: str, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidRequestError(f"{field} must be a whole number from {low} to {high}")


def check_bool(value: object, field: str) -> None:
    if type(value) is not bool:
        raise InvalidRequestError(f"{field} must be true or false")


def check_seconds(value: object, field: str, *, low: float, high: float) -> None:
    # A nan and an infinity are not between them either.
    is_between = isinstance(value, int | float) and low <= value <= high
    if not is_between or isinstance(value, bool):
        raise InvalidRequestError(f"{field} must be a number from {low:g} to {high:g}")


def check_time(value: object, field: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_TIME:
        raise InvalidRequestError(f"{field} must be a time in microseconds since 1970")


def check_text(value: object, field: str, limit: int = MAX_ERROR_LENGTH) -> None:
    if not isinstance(value, str) or _BAD_TEXT.search(value):
        raise InvalidRequestError(f"{field} must be text without NUL characters")
    if len(value) > limit:
        raise InvalidRequestError(f"{field} must have at most {limit} characters")


def check_bytes(value: object, field: str, limit: int = MAX_PAYLOAD_BYTES) -> None:
    if type(value) is not bytes or not value or value[0] in SEALS:
        raise InvalidRequestError(f"{field} must be JSON, given as bytes")
    if len(value) > limit:
        raise InvalidRequestError(f"{field} has {len(value)} bytes, more than {limit}")


def check_json(value: object, field: str, limit: int = MAX_PAYLOAD_BYTES) -> None:
    """As `check_bytes`, and read all of it."""
    check_bytes(value, field, limit)
    assert isinstance(value, bytes)
    try:
        msgspec.json.decode(value, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"{field} must be JSON: {error}") from None


def check_list(value: object, field: str) -> None:
    if not isinstance(value, list | tuple):
        raise InvalidRequestError(f"{field} must be a list")


def check_sequence(value: object, field: str) -> None:
    """As `check_list`, of any sequence."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidRequestError(f"{field} must be a list")


def check_kinds(values: Iterable[object], kind: type) -> None:
    for value in values:
        check_kind(value, kind)


def check_kind(value: object, kind: type) -> None:
    """Check that a request is a struct of its type."""
    if not isinstance(value, kind):
        raise InvalidRequestError(
            f"the request must be a {kind.__name__}, not a {type(value).__name__}"
        )


def check_headers(value: bytes) -> None:
    check_bytes(value, "headers", 65_536)
    try:
        msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"headers must be a JSON object: {error}") from None


def check_mark(value: object) -> None:
    """Of a call, so it is refused as a whole."""
    if not isinstance(value, str) or not _MARK.fullmatch(value):
        raise InvalidRequestError("mark must be text of 1 to 64 printable ASCII characters")


def check_limit(value: object, most: int = 1000) -> None:
    check_int(value, "limit", 1, most)


def check_max_bytes(value: object) -> None:
    check_int(value, "max_bytes", 1, 2**40)
