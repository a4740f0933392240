"""Numbers, times and names as people read them: with units, and no more digits than they need."""

from __future__ import annotations

from datetime import UTC, datetime

from monarq.clock import DAY, SECOND
from monarq.spark.pipelines.analyse.figures import WORKERS, Window

_NAME_CHARACTERS = 64


def count(number: float) -> str:
    """`12,300`."""
    return f"{round(number):,}"


def short_count(number: float) -> str:
    """`12.3 k`: where there is little room."""
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(number) >= limit:
            return _digits(number / limit) + unit
    return _digits(number)


def duration(seconds: float) -> str:
    """`1.2 s`."""
    if seconds == 0:
        return "0 s"
    for limit, unit in ((86_400 * 2, "d"), (3_600 * 2, "h"), (60 * 2, "min")):
        if seconds >= limit:
            return f"{_digits(seconds / (limit / 2))} {unit}"
    if seconds >= 0.9995:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds >= 0.0009995:
        return f"{_digits(seconds * 1e3)} ms"
    return f"{_digits(seconds * 1e6)} µs"


def share(part: float) -> str:
    """`94 %`. Never 0 % of what there is, nor 100 % if something is missing."""
    percent = part * 100
    if 0 < percent < 1:
        return f"{max(percent, 0.01):.2g} %"
    if 99 < percent < 100:
        return f"{min(percent, 99.9):.3g} %"
    return f"{percent:.0f} %"


def size(octets: float) -> str:
    """`1.4 MB`."""
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if octets >= limit:
            return f"{_digits(octets / limit)} {unit}"
    return f"{octets:.0f} B"


def rate(per_second: float, beside: float | None = None) -> str:
    """`2.3 a minute`: in the unit that gives a number people can picture, of this rate or of the
    one that it is to be compared with."""
    if per_second == 0:
        return "none"
    seconds, unit = rate_unit(beside or per_second)
    number = per_second * seconds
    return f"{number:.1f} a {unit}" if number < 9.95 else f"{number:,.0f} a {unit}"


def rate_unit(per_second: float) -> tuple[int, str]:
    """In how many seconds to count, and what that is called."""
    for seconds, unit in ((1, "second"), (60, "minute"), (3_600, "hour")):
        if per_second * seconds >= 1:
            return seconds, unit
    return 86_400, "day"


def clock_time(at: int, window: Window) -> str:
    """`14:05`, with the day if the window has several, and seconds if its buckets are short."""
    moment = datetime.fromtimestamp(at // SECOND, UTC)
    if window.bucket >= DAY:
        return f"{moment.day} {moment:%b %Y}"
    text = f"{moment:%H:%M:%S}" if window.bucket < 60 * SECOND else f"{moment:%H:%M}"
    same_day = window.start // DAY == (window.end - 1) // DAY
    return text if same_day else f"{moment.day} {moment:%b} {text}"


def full_time(at: int) -> str:
    moment = datetime.fromtimestamp(at // SECOND, UTC)
    return f"{moment.day} {moment:%b %Y, %H:%M} UTC"


def period(first: int, last: int) -> str:
    """`31 Jan 2026, 13:30 to 15:31 UTC`; both days, if there are two."""
    begin, end = (datetime.fromtimestamp(at // SECOND, UTC) for at in (first, last))
    if begin.date() != end.date():
        return f"{full_time(first)} to {full_time(last)}"
    return f"{begin.day} {begin:%b %Y, %H:%M} to {end:%H:%M} UTC"


def name(text: str) -> str:
    """A name in a sentence: between backquotes, on one line and not too long."""
    return f"`{plain(text, _NAME_CHARACTERS).replace('`', 'ˋ')}`"


def plain(text: str, most: int) -> str:
    """Text from outside, on one line: what is no letter of any script must not move the rest."""
    shown = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def subject(queue: str, group: str | None) -> str:
    """What a sentence is about. The group that nobody named needs no name."""
    if group is None or group in (WORKERS, "__QUEUE_MODE__"):
        return name(queue)
    return f"{name(queue)} for {name(group)}"


def _digits(number: float) -> str:
    """Two digits that count, or all before the point."""
    if abs(number) >= 99.5:
        return f"{number:,.0f}"
    text = f"{number:.2g}" if abs(number) < 9.95 else f"{number:.0f}"
    return f"{float(text):g}"
