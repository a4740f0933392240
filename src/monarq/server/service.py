"""What the routes work with."""

from __future__ import annotations

from dataclasses import dataclass, field

from monarq.broker.broker import Broker
from monarq.clock import Clock, SystemClock
from monarq.config import Settings


@dataclass(slots=True)
class Service:
    """One process of the server."""

    broker: Broker
    settings: Settings
    started_at: int
    version: str
    clock: Clock = field(default_factory=SystemClock)

    def now(self) -> int:
        return self.clock.now()
