"""Which seqs the transaction ids of what was popped here have, so that acks need not look them up.

An id means the same message as long as its lease lives, and the token of a lease is given once,
even if the database is set back and counts anew; so this cannot be wrong. It may have forgotten, or
never known what another process popped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

MOST_IDS = 100_000

_Run = tuple[int, Sequence[str | None]]


class DeliveredIds:
    """By lease and partition; the leases that were given longest ago are forgotten first."""

    def __init__(self) -> None:
        self._runs: OrderedDict[tuple[str, int], list[_Run]] = OrderedDict()
        self._count = 0

    def learn(
        self, token: str, partition_id: int, first_seq: int, ids: Sequence[str | None]
    ) -> None:
        self._runs.setdefault((token, partition_id), []).append((first_seq, ids))
        self._count += len(ids)
        while self._count > MOST_IDS:
            _, runs = self._runs.popitem(last=False)
            self._count -= sum(len(run) for _, run in runs)

    def forget(self, token: str, partition_id: int) -> None:
        """The lease on the partition has ended."""
        runs = self._runs.pop((token, partition_id), ())
        self._count -= sum(len(run) for _, run in runs)

    def first_of(self, token: str, partition_id: int, ids: list[str]) -> int | None:
        """The first seq, if these ids are those of messages in a row."""
        for first_seq, known in self._runs.get((token, partition_id), ()):
            if known[0] == ids[0]:
                start = 0
            elif ids[0] in known:
                start = known.index(ids[0])
            else:
                continue
            if known[start : start + len(ids)] == ids:
                return first_seq + start
        return None
