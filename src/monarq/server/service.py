"""What the routes work with."""

from __future__ import annotations

from dataclasses import dataclass

from monarq.broker.broker import Broker
from monarq.config import Settings


@dataclass(slots=True)
class Service:
    """One process of the server."""

    broker: Broker
    settings: Settings
    started_at: int
    version: str
