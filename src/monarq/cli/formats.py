"""Times, durations, sizes and payloads, as people type and read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from monarq.clock import SECOND
from monarq.errors import InvalidRequestError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_SIZE = re.compile(r"(\d{1,20}(?:\.\d{1,6})?) ?([KMGT]iB)?")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")


def counted(count: int, what: str) -> str:
    """1 job, 2,000 jobs."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def parse_duration(text: str, field: str) -> float:
    """Seconds: `90`, `1.5h`, `1h30m`."""
    try:
        return float(text)
    except ValueError:
        pass
    parts = _PART.findall(text)
    if not parts or "".join(f"{number}{unit}" for number, unit in parts) != text:
        raise InvalidRequestError(
            f"{field} must be a duration such as 30, 90s, 5m or 1h30m, not {text!r}"
        )
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def parse_moment(
    text: str, field: str, now: datetime | None = None, *, or_else: str = ""
) -> datetime:
    """`+5m` from now, `-1h` before it, `now`, or a time in ISO 8601, local if it names no zone.
    `or_else` names what the caller takes besides, for the error."""
    now = now or datetime.now(UTC)
    if text == "now":
        return now
    try:
        if text[:1] in "+-" and text[1:2].isdigit():
            seconds = parse_duration(text[1:], field)
            return now + timedelta(seconds=seconds if text[0] == "+" else -seconds)
        return datetime.fromisoformat(text).astimezone(UTC)
    except OverflowError:
        raise InvalidRequestError(f"{field} must be within the years 1 to 9999") from None
    except ValueError:
        raise InvalidRequestError(
            f"{field} must be {or_else}+5m, -1h, now, or a time such as 2026-01-31T12:00:00Z, "
            f"not {text!r}"
        ) from None


def payload_value(payload: bytes) -> Any:
    """Return the payload's value, or its text if it has a number that Python cannot hold, such as
    1e400: whoever may push may push that."""
    import msgspec

    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return payload.decode("utf-8", "replace")


def moment(micros: int | None) -> str | None:
    """ISO 8601, UTC, to the second; for JSON and tables."""
    if micros is None:
        return None
    return datetime.fromtimestamp(micros / SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ago(micros: int | None, now: int) -> str | None:
    """How long it is past, or to come."""
    if micros is None:
        return None
    seconds = (now - micros) / SECOND
    return f"{duration(seconds)} ago" if seconds >= 0 else f"in {duration(-seconds)}"


def since(text: str) -> str:
    """How long a time in ISO 8601 is past, or to come."""
    at = round(datetime.fromisoformat(text).timestamp() * SECOND)
    return str(ago(at, round(datetime.now(UTC).timestamp() * SECOND)))


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} m" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def parse_size(text: str, field: str) -> int:
    """Bytes: `1048576`, `512KiB`, `1.5GiB`."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise InvalidRequestError(
            f"{field} must be a number of bytes, or a size such as 512MiB or 2GiB, not {text!r}"
        )
    count = int(float(found[1]) * 1024 ** ("", "KiB", "MiB", "GiB", "TiB").index(found[2] or ""))
    if not 0 < count < 2**63:
        raise InvalidRequestError(f"{field} must be between 1 byte and 8 EiB, not {text!r}")
    return count


def size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("the loop above returns")
