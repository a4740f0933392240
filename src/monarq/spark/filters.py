"""What filters of a query say about which messages need not be read at all.

Filters only narrow: Spark evaluates them again, so what is not understood here is simply left
to it. Spark refuses a reader that takes filters unless the session has that switched on
(`spark.sql.python.filterPushdown.enabled`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime
from types import FrameType
from typing import Any

from msgspec import Struct
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from monarq.spark.access import SeqRange
from monarq.spark.ranges import Window
from monarq.times import micros_of

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class Narrowing(Struct):
    """None, or an open end, where nothing is said."""

    queues: frozenset[str] | None = None
    partitions: frozenset[str] | None = None
    first_seq: int = 1
    last_seq: int = 2**63 - 1
    since: int | None = None
    until: int | None = None

    def window(self, given: Window) -> Window:
        """Both at once."""
        since = [one for one in (self.since, given.since) if one is not None]
        until = [one for one in (self.until, given.until) if one is not None]
        return Window(max(since, default=None), min(until, default=None))

    def applied(self, ranges: list[SeqRange]) -> list[SeqRange]:
        if self == Narrowing():
            return ranges
        narrowed: list[SeqRange] = []
        for one in ranges:
            if self.queues is not None and one.queue not in self.queues:
                continue
            if self.partitions is not None and one.partition not in self.partitions:
                continue
            first = max(one.first_seq, self.first_seq)
            last = min(one.last_seq, self.last_seq)
            if first <= last:
                narrowed.append(one._replace(first_seq=first, last_seq=last))
        return narrowed

    def add(self, condition: Filter) -> None:
        match condition:
            case EqualTo(("queue",), str(name)):
                self.queues = _both(self.queues, {name})
            case In(("queue",), names) if _all_are(str, names):
                self.queues = _both(self.queues, names)
            case EqualTo(("partition",), str(name)):
                self.partitions = _both(self.partitions, {name})
            case In(("partition",), names) if _all_are(str, names):
                self.partitions = _both(self.partitions, names)
            case (
                EqualTo(("seq",), int(value))
                | GreaterThan(("seq",), int(value))
                | GreaterThanOrEqual(("seq",), int(value))
                | LessThan(("seq",), int(value))
                | LessThanOrEqual(("seq",), int(value))
            ):
                self._add_seq(condition, value)
            case (
                EqualTo(("created_at",), datetime() as time)
                | GreaterThan(("created_at",), datetime() as time)
                | GreaterThanOrEqual(("created_at",), datetime() as time)
                | LessThan(("created_at",), datetime() as time)
                | LessThanOrEqual(("created_at",), datetime() as time)
            ) if time.tzinfo is not None:
                self._add_time(condition, micros_of(time))

    def _add_seq(self, condition: Filter, value: int) -> None:
        first, last = _interval(condition, value)
        if first is not None:
            self.first_seq = max(self.first_seq, first)
        if last is not None:
            self.last_seq = min(self.last_seq, last)

    def _add_time(self, condition: Filter, micros: int) -> None:
        first, last = _interval(condition, micros)
        if first is not None:
            self.since = first if self.since is None else max(self.since, first)
        if last is not None:
            self.until = last + 1 if self.until is None else min(self.until, last + 1)


def is_pushdown_on() -> bool:
    """Whether the session has it on, as far as it matters: Spark tells a data source only by
    which of its workers asks for a reader."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        spec = frame.f_globals.get("__spec__")
        if getattr(spec, "name", None) == _PUSHDOWN_WORKER:
            return True
        frame = frame.f_back
    return False


def _interval(condition: Filter, value: int) -> tuple[int | None, int | None]:
    """The first and the last whole number that pass."""
    match condition:
        case EqualTo():
            return value, value
        case GreaterThan():
            return value + 1, None
        case GreaterThanOrEqual():
            return value, None
        case LessThan():
            return None, value - 1
        case LessThanOrEqual():
            return None, value
    return None, None


def _all_are(kind: type, values: Iterable[Any]) -> bool:
    return all(isinstance(value, kind) for value in values)


def _both(known: frozenset[str] | None, further: Iterable[str]) -> frozenset[str]:
    return frozenset(further) if known is None else known & frozenset(further)
