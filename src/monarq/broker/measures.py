"""What the broker counts about itself: plain numbers, read by whoever shows them.

No lock and no library: everything runs on the one loop. Nothing here decides anything.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

SIZE_BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
SECOND_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Histogram:
    """How many values fell at or below each bound; the last count is for all above."""

    __slots__ = ("bounds", "counts", "sum", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += 1
        self.sum += value


class CallMeasure:
    """One kind of call."""

    __slots__ = (
        "batch_calls",
        "batch_messages",
        "calls",
        "errors",
        "in_flight",
        "messages",
        "seconds",
    )

    def __init__(self) -> None:
        self.calls = 0
        """Callers' calls that were taken."""
        self.messages = 0
        """Messages (or acks, renewals, operations) in them that were carried out."""
        self.errors = 0
        """Calls that were answered with an error."""
        self.in_flight = 0
        """Calls to the store under way."""
        self.batch_calls = Histogram(SIZE_BOUNDS)
        """How many calls went to the store together."""
        self.batch_messages = Histogram(SIZE_BOUNDS)
        """How many messages did."""
        self.seconds = Histogram(SECOND_BOUNDS)
        """How long the store took."""


class Measures:
    """All of it. Counters only grow; gauges say how it is now."""

    def __init__(self) -> None:
        self.push = CallMeasure()
        self.pop = CallMeasure()
        self.ack = CallMeasure()
        self.renew = CallMeasure()
        self.transaction = CallMeasure()
        self.pop_steps: Counter[str] = Counter()
        """Pops by what became of a look: `delivered`, `empty`, `failed`, `given_back`;
        and `timed_out`, `cancelled`. See `pops_now` for those under way."""
        self.pops_pending = 0
        """Pops that wait for a connection."""
        self.pops_leasing = 0
        """Pops that the store is working on: finding, leasing and fetching are one step there."""
        self.pops_parked = 0
        """Pops that wait for a message."""
        self.wakes: Counter[str] = Counter()
        """Waiting pops that were woken, by cause: `push`, `free`, `due`, `lifecycle`, `peer`,
        `poll`, `admin`, `store`, `chain`, `again`."""
        self.overloaded = 0
        """Calls refused because too many wait already."""
        self.abandoned = 0
        """Calls to the store that did not answer in time."""
        self.guilty = 0
        """Requests that made a batch fail, and then failed alone."""
        self.store_failures = 0
        """How often the store was found to be down."""
        self.polls = 0
        """Times that the store was asked whether anybody has written."""
        self.lifecycle_steps = 0
        self.lifecycle_failures = 0
        self.lifecycle_done: Counter[str] = Counter()
        """Rows by what was done to them: `expired`, `promoted`, `buried`, `removed`."""
        self.lifecycle_seconds = Histogram(SECOND_BOUNDS)
        self.buffered = 0
        """Messages that were written to the buffer."""
        self.replayed = 0
        """Messages that came from the buffer to the store."""
        self.deferred_lost = 0
        """Messages answered before they were durable that could not be stored."""

    def calls(self) -> dict[str, CallMeasure]:
        return {
            "push": self.push,
            "pop": self.pop,
            "ack": self.ack,
            "renew": self.renew,
            "transaction": self.transaction,
        }
