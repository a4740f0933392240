"""What the routes work with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from monarq.broker.broker import Broker
from monarq.clock import Clock, SystemClock
from monarq.config import Settings
from monarq.places import is_postgres, store_address
from monarq.server.export_slots import ExportSlots
from monarq.server.local_callers import LocalCallers
from monarq.server.metrics import Metrics
from monarq.server.sessions import Sessions
from monarq.server.slow_requests import SlowRequests
from monarq.server.snapshot import Snapshots
from monarq.server.watch.sampler import Sampler, Sight
from monarq.server.watch.streams import Streams
from monarq.wire.dashboard import OverviewSight


@dataclass(slots=True)
class Service:
    """One process of the server."""

    broker: Broker
    settings: Settings
    started_at: int
    version: str
    clock: Clock = field(default_factory=SystemClock)
    export_slots: ExportSlots = field(default_factory=ExportSlots)
    snapshots: Snapshots = field(init=False)
    metrics: Metrics = field(init=False)
    sampler: Sampler = field(init=False)
    streams: Streams = field(init=False)
    slow: SlowRequests = field(init=False)
    sessions: Sessions | None = None
    """None where nobody is asked who they are."""
    local: LocalCallers | None = None
    """Where nobody is asked who they are: knows the broker's own user."""
    known_pops: dict[int, Any] = field(default_factory=dict, init=False)
    """What pops ask for, by the identity of their query; for `routes.pop`."""
    overview: tuple[Sight, OverviewSight] | None = field(default=None, init=False)
    """The latest that was told to those who watch, and what it was made of."""

    def __post_init__(self) -> None:
        self.snapshots = Snapshots(lambda: self.broker.store, self.clock)
        self.metrics = Metrics(self.broker, self.settings, self.snapshots)
        self.sampler = Sampler(self.broker, self.snapshots)
        self.streams = Streams()
        self.slow = SlowRequests(self.clock)

    @property
    def is_postgres(self) -> bool:
        return is_postgres(store_address(self.settings))

    def now(self) -> int:
        return self.clock.now()
