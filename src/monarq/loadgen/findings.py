"""What a load found out, and how it goes meanwhile."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from monarq.loadgen.histogram import Histogram
from monarq.loadgen.plan import Mode, Plan

PERCENTILES = (50.0, 90.0, 99.0, 99.9)


class Snapshot(Struct, kw_only=True):
    """How it goes, for whoever watches."""

    phase: str
    """`filling`, `warming up` or `measuring`."""
    seconds: float
    pushed: int
    popped: int
    errors: int
    latency: Histogram


class Findings(Struct, kw_only=True):
    """Rates count what was done within the time; latencies also what came late."""

    plan: Plan
    seconds: float
    pushed: int
    popped: int
    acked: int
    requests: int
    unsent: int
    """At a rate: pushes that were due and never sent, since all connections waited."""
    missing: int
    """End to end: pushed, and not delivered to every group within a few seconds."""
    latencies: dict[str, Histogram]
    """By `push`, `pop`, `ack` and `endToEnd`."""
    errors: dict[str, int]

    @property
    def messages_per_second(self) -> float:
        """Of what the load is about: acked (or popped) in `pop` mode, pushed otherwise."""
        messages = self.pushed
        if self.plan.mode is Mode.POP:
            messages = self.popped if self.plan.auto_ack else self.acked
        return messages / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        plan = msgspec.to_builtins(self.plan)
        plan.pop("token")
        return {
            "plan": plan,
            "openLoop": self.plan.rate > 0,
            "seconds": round(self.seconds, 3),
            "messagesPerSecond": round(self.messages_per_second, 1),
            "requestsPerSecond": round(self.requests / (self.seconds or 1), 1),
            "pushed": self.pushed,
            "popped": self.popped,
            "acked": self.acked,
            "unsent": self.unsent,
            "missing": self.missing,
            "latencyMs": {name: in_milliseconds(found) for name, found in self.latencies.items()},
            "errors": self.errors,
        }


def in_milliseconds(latency: Histogram) -> dict[str, float]:
    found = {
        f"p{percent:g}": seconds for percent, seconds in latency.percentiles(PERCENTILES).items()
    }
    found |= {"max": latency.longest / 1e6, "mean": latency.mean}
    row: dict[str, float] = {"count": latency.count}
    return row | {name: round(seconds * 1000, 3) for name, seconds in found.items()}
