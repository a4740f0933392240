"""Points in time and durations, as people write them, and as the model counts them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from monarq.clock import SECOND
from monarq.errors import InvalidRequestError
from monarq.model import StartFrom

Moment: TypeAlias = datetime | float
"""A datetime with a time zone, or seconds since the epoch."""

Duration: TypeAlias = timedelta | float
"""A timedelta, or seconds."""


def to_micros(moment: Moment | None) -> int | None:
    if moment is None:
        return None
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise InvalidRequestError(
                f"{moment} has no time zone: use datetime.now(UTC), or seconds since the epoch"
            )
        moment = moment.timestamp()
    if not _is_number(moment):
        raise InvalidRequestError(
            f"{_shown(moment)} is no time: use a datetime with a time zone, or seconds since the "
            "epoch"
        )
    return round(moment * SECOND)


def _is_number(value: object) -> bool:
    """Whether it is a number that JSON and a float can hold."""
    try:
        return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    except OverflowError:
        return False


def _shown(value: object) -> str:
    """Return a short text for any value, also for an int with more digits than Python prints."""
    return str(value) if isinstance(value, float) else f"a value of type {type(value).__name__}"


def to_datetime(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / SECOND, UTC)


def to_seconds(duration: Duration | None) -> float | None:
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def to_start(start: StartFrom | Moment | str) -> StartFrom | int:
    """Where a group begins."""
    if isinstance(start, str):
        try:
            return StartFrom(start)
        except ValueError:
            raise InvalidRequestError(f"start must be all, new or a time, not {start!r}") from None
    micros = to_micros(start)
    if micros is None:
        raise InvalidRequestError("start must be all, new or a time, not None")
    return micros
