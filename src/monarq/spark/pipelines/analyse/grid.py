"""How the time that is looked at is cut into buckets: round lengths, round edges, not too many."""

from __future__ import annotations

from monarq.clock import SECOND
from monarq.spark.pipelines.analyse.figures import Window

#: A chart of more points is no easier to read.
MOST_BUCKETS = 96

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400

#: Lengths that people count time in; all edges fall on round times of UTC.
BUCKET_SECONDS = (
    *(1, 2, 5, 10, 15, 30),
    *(_MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(_DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY, 28 * _DAY, 91 * _DAY, 364 * _DAY),
)


def make_window(first: int, last: int) -> Window:
    """The finest grid that covers both times with at most `MOST_BUCKETS` buckets."""
    for seconds in BUCKET_SECONDS:
        window = _cut(first, last, seconds * SECOND)
        if window.buckets <= MOST_BUCKETS:
            return window
    return _cut(first, last, -(-(last - first + 1) // (MOST_BUCKETS - 1)))


def _cut(first: int, last: int, bucket: int) -> Window:
    start = first // bucket * bucket
    end = (last // bucket + 1) * bucket
    return Window(start=start, end=end, bucket=bucket, first=first, last=last)
