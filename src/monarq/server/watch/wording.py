"""Numbers and times in words, as they stand in sentences."""

from __future__ import annotations


def number(value: float) -> str:
    """12,400; of small ones that are not whole, one decimal."""
    if value < 10 and value != int(value):
        return f"{value:.1f}"
    return f"{value:,.0f}"


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """In the largest unit that fits: 8 minutes, 3 hours, 2 days."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            return plural(int(seconds // length), unit)
    return plural(int(seconds), "second")
