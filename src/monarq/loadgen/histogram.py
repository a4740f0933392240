"""Latencies, counted in buckets of at most 1.6 % width: exact enough for any percentile, and
as small after a day as after a second."""

from __future__ import annotations

from collections.abc import Iterable

_BITS = 6
_SUB = 1 << _BITS


class Histogram:
    """Of durations in seconds, kept as whole microseconds."""

    __slots__ = ("_counts", "count", "longest", "total")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.total = 0
        """Microseconds."""
        self.longest = 0

    def add(self, seconds: float, times: int = 1) -> None:
        micros = int(seconds * 1e6) if seconds > 0 else 0
        shift = micros.bit_length() - _BITS - 1
        bucket = (shift << (_BITS + 1)) | (micros >> shift) if shift > 0 else micros
        self._counts[bucket] = self._counts.get(bucket, 0) + times
        self.count += times
        self.total += micros * times
        if micros > self.longest:
            self.longest = micros

    def merge(self, other: Histogram) -> None:
        for bucket, times in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + times
        self.count += other.count
        self.total += other.total
        self.longest = max(self.longest, other.longest)

    def percentile(self, percent: float) -> float:
        """In seconds: what `percent` of all stay at or below (the bucket's upper end)."""
        if not self.count:
            return 0.0
        wanted = max(1, -(-self.count * percent // 100))
        seen = 0
        for bucket in sorted(self._counts, key=_upper):
            seen += self._counts[bucket]
            if seen >= wanted:
                return min(_upper(bucket), self.longest) / 1e6
        return self.longest / 1e6

    def percentiles(self, percents: Iterable[float]) -> dict[float, float]:
        return {percent: self.percentile(percent) for percent in percents}

    @property
    def mean(self) -> float:
        return self.total / self.count / 1e6 if self.count else 0.0


def _upper(bucket: int) -> int:
    shift = bucket >> (_BITS + 1)
    value = bucket & (2 * _SUB - 1)
    return ((value + 1) << shift) - 1
