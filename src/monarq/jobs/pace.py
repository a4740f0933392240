"""How far ahead a worker leases: as many jobs as it begins in a moment, and no more.

Without it the worker would have nothing to do while the next jobs are leased. What is leased ahead
is nobody else's, and has had an attempt if the worker is killed: so it is little and begins soon.
That goes by the past; what does not begin after all is given back.
"""

from __future__ import annotations

#: Jobs are leased ahead that begin within this time.
_AHEAD_SECONDS = 0.05
_MOST_AHEAD = 1000
#: A shorter time says little of the pace.
_MEASURED_SECONDS = 0.005


class Pace:
    def __init__(self, now: float) -> None:
        self._begun = 0
        self._at = now
        self._ahead = 0

    def ahead(self, begun: int, now: float) -> int:
        """How many to lease ahead, going by the jobs that began of late. `begun`: all that ever
        did; `now`: seconds on some clock."""
        seconds = now - self._at
        if seconds >= _MEASURED_SECONDS:
            ahead = min(int((begun - self._begun) / seconds * _AHEAD_SECONDS), _MOST_AHEAD)
            # A worker that ran dry for a moment has not become slow.
            self._ahead = max(ahead, self._ahead // 2) if seconds < _AHEAD_SECONDS else ahead
            self._begun, self._at = begun, now
        return self._ahead


class Stuck:
    """Whether jobs wait for longer than from one look to the next."""

    def __init__(self) -> None:
        self._begun = self._waiting = 0

    def look(self, begun: int, waiting: int) -> bool:
        is_stuck = begun - self._begun < self._waiting
        self._begun, self._waiting = begun, waiting
        return is_stuck
