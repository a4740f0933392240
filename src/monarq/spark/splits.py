"""Cuts ranges of messages into splits, one a task: big partitions are cut, small ones packed.

Pure arithmetic. The same ranges and numbers give the same splits.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from monarq.spark.access import SeqRange

#: A split with fewer messages costs more to start than to read.
WORTH_A_TASK = 10_000


@dataclass
class Split(InputPartition):
    """What one task reads."""

    ranges: Sequence[SeqRange]

    @property
    def expected(self) -> int:
        """How many messages there are, if none was deleted."""
        return sum(one.last_seq - one.first_seq + 1 for one in self.ranges)


def cut(
    ranges: Iterable[SeqRange], *, min_splits: int | None, messages_per_split: int
) -> list[Split]:
    """Splits of about equal size, in the order of the ranges; none is empty."""
    wanted = [one for one in ranges if one.first_seq <= one.last_seq]
    total = sum(one.last_seq - one.first_seq + 1 for one in wanted)
    if total == 0:
        return []
    count = split_count(total, min_splits, messages_per_split)
    splits: list[Split] = []
    current: list[SeqRange] = []
    taken = 0
    for one in wanted:
        first = one.first_seq
        while first <= one.last_seq:
            # Where this split ends in the whole: rounding never adds up.
            end = total * (len(splits) + 1) // count
            last = min(one.last_seq, first + end - taken - 1)
            whole = first == one.first_seq and last == one.last_seq
            current.append(one if whole else one._replace(first_seq=first, last_seq=last))
            taken += last - first + 1
            first = last + 1
            if taken == end:
                splits.append(Split(current))
                current = []
    return splits


def split_count(total: int, min_splits: int | None, messages_per_split: int) -> int:
    """How many splits; at most one a message."""
    if min_splits is None:
        least = min(_cores(), -(-total // WORTH_A_TASK))
    else:
        least = min_splits
    return min(total, max(least, -(-total // messages_per_split)))


def _cores() -> int:
    # A planning worker of Spark is not told how many cores the cluster has.
    return len(os.sched_getaffinity(0))
