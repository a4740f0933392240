"""Keeps the leases of a worker alive while their jobs run, and says when one is lost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from monarq.client.link import Link
from monarq.errors import LeaseError, MonarqError
from monarq.model import Renew

log = logging.getLogger("monarq.worker")


class Leases:
    """`hold` a lease and `let_go` of it; in between it is renewed. If it was taken away, or could
    not be renewed until its time was over, `on_lost` is called: somebody else may have the job
    now, so whatever runs under it must end."""

    def __init__(self, link: Link, *, lease_seconds: float, renew_seconds: float) -> None:
        self._link = link
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._held: dict[str, tuple[float, Callable[[], None]]] = {}

    def hold(self, lease_id: str, on_lost: Callable[[], None]) -> None:
        self._held[lease_id] = (time.monotonic() + self._lease_seconds, on_lost)

    def let_go(self, lease_id: str) -> None:
        self._held.pop(lease_id, None)

    def is_past(self, lease_id: str) -> bool:
        """Whether it was not renewed until its time was over."""
        held = self._held.get(lease_id)
        return held is None or time.monotonic() >= held[0]

    async def keep(self) -> None:
        """Runs for ever."""
        while True:
            await asyncio.sleep(self._renew_seconds)
            await asyncio.gather(*(self._renew(lease_id) for lease_id in list(self._held)))

    async def _renew(self, lease_id: str) -> None:
        asked_at = time.monotonic()
        try:
            await self._link.renew(Renew(lease_id, self._lease_seconds))
        except LeaseError as error:
            self._lose(lease_id, str(error))
        except MonarqError as error:
            held = self._held.get(lease_id)
            if held is not None and time.monotonic() + self._renew_seconds >= held[0]:
                self._lose(lease_id, f"it could not be renewed in time: {error}")
        else:
            held = self._held.get(lease_id)
            if held is not None:
                self._held[lease_id] = (asked_at + self._lease_seconds, held[1])

    def _lose(self, lease_id: str, why: str) -> None:
        held = self._held.pop(lease_id, None)
        if held is not None:
            log.warning("lease %s is lost, so its job is ended: %s", lease_id, why)
            held[1]()


class SharedLease:
    """A lease of jobs that were leased together; held until the last of them lets go."""

    def __init__(self, leases: Leases, lease_id: str, jobs: int) -> None:
        self._leases = leases
        self._left = jobs
        self._stops: list[asyncio.Event] = []
        self.id = lease_id
        self.is_lost = False
        leases.hold(lease_id, self._lost)

    @property
    def is_over(self) -> bool:
        """Whether it is lost, or its time has passed without a renewal."""
        return self.is_lost or self._leases.is_past(self.id)

    def hold(self) -> asyncio.Event:
        """Set when the job has to end."""
        stop = asyncio.Event()
        self._stops.append(stop)
        if self.is_lost:
            stop.set()
        return stop

    def let_go(self) -> None:
        self._left -= 1
        if not self._left:
            self._leases.let_go(self.id)

    def _lost(self) -> None:
        self.is_lost = True
        for stop in self._stops:
            stop.set()
