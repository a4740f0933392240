"""How a broker is, for those who ask."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class State(StrEnum):
    STARTING = "starting"
    SERVING = "serving"
    STORE_DOWN = "store_down"
    MAINTENANCE = "maintenance"
    DRAINING = "draining"


class BufferHealth(Struct, frozen=True, kw_only=True, rename="camel"):
    route: str
    """Where pushes go now: `direct`, `buffer` or `hold`."""
    bytes: int
    records: int
    files: int
    oldest: int | None
    """When the oldest record was written."""
    set_aside: list[str]
    """Files that could not be replayed, and wait for somebody to look at them."""
    others: list[str] = []
    """Subdirectories with pushes for another store, which this broker does not replay."""
    failing: str | None = None
    """Why the last push could not be written, if it could not."""


class Health(Struct, frozen=True, kw_only=True, rename="camel"):
    state: State
    store_ok: bool
    store_error: str | None
    buffer: BufferHealth | None
    """None if there is no buffer."""
    peers: dict[str, int] | None
    """Counters of notices; None if there are no peers."""
    parked: int
    """Pops that wait for a message."""
    waiting: dict[str, int]
    """Calls that wait for the store, by kind."""
    maintenance_push: bool
    maintenance_pop: bool
    uptime_seconds: float
