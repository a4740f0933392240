"""Tells other brokers by UDP what became available, and hears it from them.

Notices only spare waiting: a lost, late or spoofed one costs a look at the store, never a message.
So nothing is repeated or confirmed, and what is not understood is counted and ignored. Notices
of one loop turn go out together, joined by queue; those that come in are joined too, so that
a burst costs little on either side.

Knows nothing of the broker: it calls `on_notice`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import re
import secrets
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from monarq.broker.notices import (
    MalformedError,
    Notice,
    NoticeKind,
    UnauthenticatedError,
    decode,
    derive_key,
    encode,
)
from monarq.clock import SECOND, Clock, SystemClock
from monarq.errors import InvalidRequestError

log = logging.getLogger("monarq.peers")

FLUSH_SECONDS = 0.001
"""A lone notice goes at once; in a burst there is this much between two sends."""
RESOLVE_SECONDS = 30.0
RESOLVE_TIMEOUT = 5.0
MAX_JOINED = 256
MAX_SENDERS = 1024
MAX_ADDRESSES = 64
MAX_AGE = 120 * SECOND
"""How far the clocks of brokers with a key may be apart."""
_RECEIVE_BUFFER = 1 << 20
_PEER = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<host>[^:\s\[\]]+)):(?P<port>[0-9]{1,5})")

Address = tuple[int, Any]
"""A socket family, and an address of that family."""


@dataclass(slots=True)
class PeerCounters:
    sent: int = 0
    """Datagrams, each to one peer."""
    unsent: int = 0
    """Datagrams that the network did not take."""
    received: int = 0
    notices: int = 0
    """In the datagrams that were received and taken."""
    malformed: int = 0
    unauthenticated: int = 0
    replayed: int = 0
    """With a key: older than one that came before, or from another time."""
    own: int = 0
    unresolved: int = 0
    """Peers whose name has no address now."""


@dataclass(slots=True)
class _Joined:
    """Notices by what they are about; never many, whatever comes."""

    counts: dict[tuple[NoticeKind, str | None, str | None], int] = field(default_factory=dict)

    def add(self, kind: NoticeKind, queue: str | None, partition: str | None, count: int) -> None:
        counts = self.counts
        if (kind, None, None) in counts:
            queue = partition = None
        elif (kind, queue, None) in counts:
            partition = None
        key = (kind, queue, partition)
        counts[key] = counts.get(key, 0) + count
        if len(counts) > MAX_JOINED:
            self._shrink()

    def _shrink(self) -> None:
        """First forget the partitions; if there are too many queues still, those too."""
        for cut in (1, 2):
            joined: dict[tuple[NoticeKind, str | None, str | None], int] = {}
            for (kind, queue, _), count in self.counts.items():
                key = (kind, queue if cut == 1 else None, None)
                joined[key] = joined.get(key, 0) + count
            self.counts = joined
            if len(joined) <= MAX_JOINED // 2:
                return

    def take(self) -> list[Notice]:
        counts, self.counts = self.counts, {}
        return [Notice(*about, count) for about, count in counts.items()]


class Peers(asyncio.DatagramProtocol):
    """See the module. Made by `start`; set `on_notice` to be told."""

    def __init__(self, peers: Sequence[str], key: str, clock: Clock) -> None:
        self.on_notice: Callable[[Notice], None] = lambda notice: None
        self.counters = PeerCounters()
        self._names = [parse_peer(peer) for peer in peers]
        self._addresses: dict[tuple[str, int], list[Address]] = {}
        self._key = derive_key(key)
        self._clock = clock
        self._sender = secrets.token_bytes(8)
        self._stamps = self._make_stamps()
        self._latest: OrderedDict[bytes, int] = OrderedDict()
        self._loop = asyncio.get_running_loop()
        self._outgoing, self._incoming = _Joined(), _Joined()
        self._flush_timer: asyncio.Handle | None = None
        self._flushed_at = 0.0
        self._deliver_soon: asyncio.Handle | None = None
        self._sockets: dict[int, socket.socket] = {}
        self._transport: asyncio.DatagramTransport | None = None
        self._resolving: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        host: str,
        port: int,
        peers: Sequence[str] = (),
        key: str = "",
        on_notice: Callable[[Notice], None] | None = None,
        *,
        sock: socket.socket | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """Receive on `host` and `port` (0 takes a free one), or on a bound UDP socket `sock`.

        `peers` are `host:port` or `[IPv6]:port`; a name is sent to at all its addresses, and
        looked up again now and then. Raises OSError if the address cannot be had.
        """
        self = cls(peers, key, clock or SystemClock())
        if on_notice is not None:
            self.on_notice = on_notice
        if sock is None:
            sock = await self._bind(host, port)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        self._transport, _ = await self._loop.create_datagram_endpoint(lambda: self, sock=sock)
        for name in self._names:
            self._resolve_number(*name)
        if len(self._addresses) < len(self._names):
            self._resolving = asyncio.create_task(self._keep_resolving(), name="monarq-peers")
        return self

    @property
    def address(self) -> tuple[str, int]:
        """Where notices are received."""
        assert self._transport is not None
        host, port, *_ = self._transport.get_extra_info("sockname")
        return host, port

    def set_peers(self, peers: Sequence[str]) -> None:
        """Tell these from now on."""
        self._names = [parse_peer(peer) for peer in peers]
        known = self._addresses
        self._addresses = {name: known[name] for name in self._names if name in known}
        for name in self._names:
            self._resolve_number(*name)
        if len(self._addresses) < len(self._names) and self._resolving is None:
            self._resolving = asyncio.create_task(self._keep_resolving(), name="monarq-peers")

    def close(self) -> None:
        """Send what is waiting, and stop."""
        self._flush()
        if self._resolving is not None:
            self._resolving.cancel()
        if self._transport is not None:
            self._transport.close()
        if self._deliver_soon is not None:
            self._deliver_soon.cancel()
        for sender in self._sockets.values():
            sender.close()
        self._sockets.clear()
        self._names, self._addresses = [], {}

    # --- telling -------------------------------------------------------------------------

    def notify(
        self,
        kind: NoticeKind,
        queue: str | None = None,
        partition: str | None = None,
        count: int = 1,
    ) -> None:
        """Tell every peer, soon; never blocks and never fails."""
        if not self._names:
            return
        self._outgoing.add(kind, queue, partition, count)
        if self._flush_timer is None:
            due = self._flushed_at + FLUSH_SECONDS
            if due <= self._loop.time():
                self._flush_timer = self._loop.call_soon(self._flush)
            else:
                self._flush_timer = self._loop.call_at(due, self._flush)

    def _flush(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        self._flushed_at = self._loop.time()
        notices = self._outgoing.take()
        for data in encode(notices, self._sender, self._stamps, self._key):
            for addresses in self._addresses.values():
                for family, address in addresses:
                    self._send(data, family, address)

    def _send(self, data: bytes, family: int, address: Any) -> None:
        try:
            sender = self._sockets.get(family)
            if sender is None:
                sender = self._sockets[family] = socket.socket(family, socket.SOCK_DGRAM)
                sender.setblocking(False)
            sender.sendto(data, address)
            self.counters.sent += 1
        except OSError:  # full, unreachable or forbidden: the peer looks again by itself
            self.counters.unsent += 1

    def _make_stamps(self) -> Iterator[int]:
        stamp = 0
        while True:
            stamp = max(stamp + 1, self._clock.now())
            yield stamp

    # --- hearing -------------------------------------------------------------------------

    def datagram_received(self, data: bytes, addr: Any) -> None:
        counters = self.counters
        counters.received += 1
        try:
            datagram = decode(data, self._key)
        except MalformedError:
            counters.malformed += 1
            return
        except UnauthenticatedError:
            counters.unauthenticated += 1
            return
        if datagram.sender == self._sender:
            counters.own += 1
            return
        if datagram.is_authenticated and not self._is_new(datagram.sender, datagram.stamp):
            counters.replayed += 1
            return
        counters.notices += len(datagram.notices)
        for notice in datagram.notices:
            self._incoming.add(notice.kind, notice.queue, notice.partition, notice.count)
        if self._deliver_soon is None:
            self._deliver_soon = self._loop.call_soon(self._deliver)

    def _is_new(self, sender: bytes, stamp: int) -> bool:
        """Whether it is from now, and later than all that this sender sent before."""
        if abs(stamp - self._clock.now()) > MAX_AGE or stamp <= self._latest.get(sender, 0):
            return False
        self._latest[sender] = stamp
        self._latest.move_to_end(sender)
        if len(self._latest) > MAX_SENDERS:
            self._latest.popitem(last=False)
        return True

    def _deliver(self) -> None:
        self._deliver_soon = None
        for notice in self._incoming.take():
            self.on_notice(notice)

    def error_received(self, exc: Exception) -> None:
        self.counters.unsent += 1

    # --- addresses -----------------------------------------------------------------------

    async def _bind(self, host: str, port: int) -> socket.socket:
        found = await self._loop.getaddrinfo(
            host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.bind(address)
        except BaseException:
            sock.close()
            raise
        return sock

    def _resolve_number(self, host: str, port: int) -> None:
        try:
            number = ipaddress.ip_address(host)
        except ValueError:
            return
        family = socket.AF_INET if number.version == 4 else socket.AF_INET6
        self._addresses[(host, port)] = [(family, (host, port))]

    async def _keep_resolving(self) -> None:
        while True:
            names = [name for name in self._names if not _is_number(name[0])]
            found = await asyncio.gather(*(self._resolve(*name) for name in names))
            self.counters.unresolved = found.count(False)
            await asyncio.sleep(RESOLVE_SECONDS)

    async def _resolve(self, host: str, port: int) -> bool:
        """A name that has no address now keeps those it had."""
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT):
                found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        except (OSError, UnicodeError, TimeoutError) as error:
            log.warning("the peer %s:%d cannot be resolved: %s", host, port, error)
            return False
        if (host, port) in self._names:
            addresses: dict[Address, None] = {(family, at): None for family, _, _, _, at in found}
            self._addresses[(host, port)] = list(addresses)[:MAX_ADDRESSES]
        return True


def parse_peer(text: str) -> tuple[str, int]:
    """`host:port` or `[IPv6 address]:port`."""
    match = _PEER.fullmatch(text.strip())
    if match is not None:
        host = match["six"] or match["host"]
        port = int(match["port"])
        if 1 <= port <= 65_535 and (not match["six"] or _is_number(host)):
            return host, port
    raise InvalidRequestError(f"{text[:300]!r} is no peer: write host:port or [IPv6 address]:port")


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
