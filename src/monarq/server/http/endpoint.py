"""What all connections of a process share: the application, the limits, what is known of heads,
the timer, and the list of those that are open."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from monarq.server.exchange import Admission, Admitted, Handled, RequestHead
from monarq.server.http.bodies import Bodies
from monarq.server.http.deadlines import Deadlines
from monarq.server.http.head import HeadReader
from monarq.server.http.limits import Limits
from monarq.server.http.unsent import Unsent
from monarq.server.http.writing import Heads

if TYPE_CHECKING:
    from monarq.server.http.connection import Connection


class Application(Protocol):
    def admit(self, head: RequestHead) -> Admitted | Coroutine[Any, Any, Admitted]:
        """Decide whether to read the body of a request that has not come with its head."""

    def handle(self, head: RequestHead, body: bytes, admission: Admission | None = None) -> Handled:
        """Answer a request; `admission` is what `admit` returned, if it was asked."""


class Counters:
    """Since the start, but for `open`."""

    __slots__ = ("abandoned", "accepted", "open", "refused", "requests", "timed_out", "turned_away")

    def __init__(self) -> None:
        self.open = 0
        self.accepted = 0
        self.turned_away = 0
        """Connections over the limit."""
        self.requests = 0
        self.refused = 0
        """Requests that the protocol itself refused."""
        self.timed_out = 0
        """Connections cut because the client was too slow."""
        self.abandoned = 0
        """Requests whose client went away before the answer."""


class Endpoint:
    def __init__(
        self,
        application: Application,
        limits: Limits | None = None,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        counters: Counters | None = None,
        secure: bool = False,
    ) -> None:
        """`secure` if all connections are TLS."""
        self.loop = loop or asyncio.get_running_loop()
        self.application = application
        self.limits = limits or Limits()
        self.heads = HeadReader(self.limits)
        self.answer_heads = Heads(secure=secure)
        self.counters = counters or Counters()
        self.connections: set[Connection] = set()
        """Without those that were turned away: they use up nobody's limit."""
        self._turned_away: set[Connection] = set()
        """Turned away, and still open so that the client reads why."""
        self.event_streams: Counter[str] = Counter()
        """Open event streams by the client's address."""
        self._addresses: Counter[str] = Counter()
        """Connections by the client's address."""
        self.bodies = Bodies(self.limits)
        self.unsent = Unsent(self.limits.unsent_bytes, self.loop.time)
        self.draining = False
        shortest = min(
            self.limits.head_seconds,
            self.limits.body_seconds,
            self.limits.keep_alive_seconds,
            self.limits.write_seconds,
            self.limits.linger_seconds,
        )
        self.deadlines = Deadlines(self.loop, min(0.5, max(shortest / 8, 0.01)))
        self._emptied: asyncio.Future[None] | None = None

    @property
    def incoming_bytes(self) -> int:
        """Bytes of the bodies that are still coming in."""
        return self.bodies.held

    def fullness(self, address: str) -> str | None:
        """Return why there is no room for a connection from an address, or None if there is."""
        if self.draining:
            return "the server is shutting down, try another connection"
        if len(self.connections) >= self.limits.connections:
            return "there are too many connections already"
        if self._addresses[address] >= self.limits.connections_per_address:
            return "there are too many connections from your address already"
        return None

    def opened(self, connection: Connection) -> None:
        self.connections.add(connection)
        self._addresses[connection.address] += 1
        self.counters.open += 1
        self.counters.accepted += 1

    def turn_away(self, connection: Connection) -> bool:
        """Count a connection that is over a limit. Return whether there is time to tell it so."""
        self.counters.accepted += 1
        self.counters.turned_away += 1
        if len(self._turned_away) >= self.limits.turned_away:
            return False
        self._turned_away.add(connection)
        return True

    def closed(self, connection: Connection) -> None:
        if connection not in self.connections:
            self._turned_away.discard(connection)
            return
        self.connections.remove(connection)
        self.counters.open -= 1
        self._addresses[connection.address] -= 1
        if self._addresses[connection.address] <= 0:
            del self._addresses[connection.address]
        if self._emptied is not None and not self.connections and not self._emptied.done():
            self._emptied.set_result(None)

    def drain(self) -> None:
        """Close what is idle, and every other connection with its answer. New ones are none of
        this object's business: whoever listens stops."""
        self.draining = True
        for connection in tuple(self.connections):
            connection.drain()

    async def emptied(self) -> None:
        """Wait until the last connection is closed."""
        if self.connections:
            self._emptied = self.loop.create_future()
            await self._emptied

    def abort(self) -> None:
        """Cut every connection now."""
        for connection in (*self.connections, *self._turned_away):
            connection.abort()

    def close(self) -> None:
        self.abort()
        self.deadlines.close()
