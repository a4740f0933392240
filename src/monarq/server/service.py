"""What the routes work with."""

from __future__ import annotations

from dataclasses import dataclass, field

from monarq.broker.broker import Broker
from monarq.clock import Clock, SystemClock
from monarq.config import Settings
from monarq.server.metrics import Metrics
from monarq.server.sessions import Sessions


@dataclass(slots=True)
class Service:
    """One process of the server."""

    broker: Broker
    settings: Settings
    started_at: int
    version: str
    clock: Clock = field(default_factory=SystemClock)
    metrics: Metrics = field(init=False)
    sessions: Sessions | None = None
    """None where nobody is asked who they are."""

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.broker, self.settings)

    def now(self) -> int:
        return self.clock.now()
