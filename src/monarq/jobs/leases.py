"""Keeps the leases of a worker alive while their jobs run, and says when one is lost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from monarq.client.link import Link
from monarq.errors import LeaseError, MonarqError
from monarq.jobs.commands import GRACE_SECONDS
from monarq.model import Renew

log = logging.getLogger("monarq.worker")


#: A command that is told to end is killed after `GRACE_SECONDS`: this long before its lease is over
#: it has to be told, so that it has ended when somebody else may begin.
MARGIN_SECONDS = GRACE_SECONDS + 1.0


class _Held:
    """A lease, `until` when it is ours by our own clock, and what is to happen then; `end` is when
    somebody else may have it."""

    def __init__(self, until: float, end: float, on_lost: Callable[[], None]) -> None:
        self.until = until
        self.end = end
        self.on_lost = on_lost
        self.on_renewed: Callable[[float], None] | None = None
        self.last_error = "nobody answered"
        self.ending: asyncio.TimerHandle | None = None

    def end_later(self, end: Callable[[], None]) -> None:
        self.do_not_end()
        loop = asyncio.get_running_loop()
        self.ending = loop.call_later(self.until - time.monotonic(), end)

    def do_not_end(self) -> None:
        if self.ending is not None:
            self.ending.cancel()


class Leases:
    """`hold` a lease and `let_go` of it; in between it is renewed. If it was taken away, or could
    not be renewed until its time was over, `on_lost` is called: somebody else may have the job
    now, so whatever runs under it must end. That waits for nobody: a broker that does not answer
    may not keep a job running past its lease."""

    def __init__(self, link: Link, *, lease_seconds: float, renew_seconds: float) -> None:
        self._link = link
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._safe_seconds = lease_seconds - min(MARGIN_SECONDS, lease_seconds / 4)
        self._held: dict[str, _Held] = {}

    def hold(self, lease_id: str, on_lost: Callable[[], None]) -> None:
        now = time.monotonic()
        held = _Held(now + self._safe_seconds, now + self._lease_seconds, on_lost)
        self._held[lease_id] = held
        self._end_in_time(lease_id, held)

    def let_go(self, lease_id: str) -> None:
        held = self._held.pop(lease_id, None)
        if held is not None:
            held.do_not_end()

    def is_past(self, lease_id: str) -> bool:
        """Whether it was not renewed until its time was over."""
        held = self._held.get(lease_id)
        return held is None or time.monotonic() >= held.until

    def tell_end(self, lease_id: str, told: Callable[[float], None] | None) -> None:
        """Tell `told` when the lease ends, by `time.monotonic`: now, and when it is renewed."""
        held = self._held.get(lease_id)
        if held is not None:
            held.on_renewed = told
            if told is not None:
                told(held.end)

    async def keep(self) -> None:
        """Runs for ever."""
        while True:
            await asyncio.sleep(self._renew_seconds)
            await asyncio.gather(*(self._renew(lease_id) for lease_id in list(self._held)))

    async def _renew(self, lease_id: str) -> None:
        asked_at = time.monotonic()
        try:
            # So that there is time for a second try, perhaps of another broker.
            async with asyncio.timeout(self._lease_seconds / 3):
                await self._link.renew(Renew(lease_id, self._lease_seconds))
        except LeaseError as error:
            self._lose(lease_id, str(error))
        except (MonarqError, TimeoutError) as error:
            held = self._held.get(lease_id)
            if held is not None:
                held.last_error = str(error) or "nobody answered"
        else:
            held = self._held.get(lease_id)
            if held is not None:
                # From when it was asked for: nobody knows when after that it was granted.
                held.until = asked_at + self._safe_seconds
                held.end = asked_at + self._lease_seconds
                self._end_in_time(lease_id, held)
                if held.on_renewed is not None:
                    held.on_renewed(held.end)

    def _end_in_time(self, lease_id: str, held: _Held) -> None:
        held.end_later(
            lambda: self._lose(lease_id, f"it could not be renewed in time: {held.last_error}")
        )

    def _lose(self, lease_id: str, why: str) -> None:
        held = self._held.get(lease_id)
        if held is not None:
            self.let_go(lease_id)
            log.warning("lease %s is lost, so its job is ended: %s", lease_id, why)
            held.on_lost()


class SharedLease:
    """A lease of jobs that were leased together; held until the last of them lets go."""

    def __init__(self, leases: Leases, lease_id: str, jobs: int) -> None:
        self._leases = leases
        self._left = jobs
        self._stops: list[asyncio.Event] = []
        self.id = lease_id
        self.is_lost = False
        self.is_shared = jobs > 1
        self.taken: set[str] = set()
        """Ids of its messages that are no longer under it, such as those that were cancelled."""
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

    def tell_end(self, told: Callable[[float], None] | None) -> None:
        """See `Leases`; of a lease of one job."""
        self._leases.tell_end(self.id, told)

    def let_go(self) -> None:
        self._left -= 1
        if not self._left:
            self._leases.let_go(self.id)

    def _lost(self) -> None:
        self.is_lost = True
        for stop in self._stops:
            stop.set()
