"""Request bodies that come in piece by piece, and the memory that they share.

Each body is charged to an owner: the authenticated principal, all callers without credentials
together, or, without authentication, the client's address. When the bodies of a process need more
than `bodies_bytes`, the owner that holds the most loses a body. A client that fills the memory and
stops sending therefore loses its own bodies and delays nobody else.

Within that owner the body that has stalled goes first, weighed by its size. If none has stalled,
the owner has too much under way: the body that is just growing goes, so that the others finish.
"""

from __future__ import annotations

from collections.abc import Callable

from monarq.server.answers import HttpError
from monarq.server.exchange import UNAUTHENTICATED
from monarq.server.http.chunked import ChunkedBody
from monarq.server.http.limits import Limits

_STEP = 64 << 10
"""A body that grew by less has not moved: one byte now and then is no progress."""
_UNAUTHENTICATED_PART = 8
"""Callers without credentials share this part of the memory."""


class Share:
    """The unfinished bodies of one owner."""

    __slots__ = ("bodies", "held", "limit", "owner")

    def __init__(self, owner: str, limit: int) -> None:
        self.owner = owner
        self.limit = limit
        self.held = 0
        self.bodies: set[Body] = set()


class Body:
    """One unfinished body. `drop` refuses its request and closes the connection."""

    __slots__ = ("_moved", "began", "chunks", "content", "drop", "left", "moved_at", "share")

    def __init__(
        self,
        share: Share,
        length: int | None,
        limit: int,
        now: float,
        drop: Callable[[HttpError], None],
    ) -> None:
        """`length` is None for a chunked body, which may have up to `limit` bytes."""
        self.share = share
        self.drop = drop
        self.chunks = ChunkedBody(limit) if length is None else None
        self.content = bytearray() if self.chunks is None else self.chunks.content
        self.left = length or 0
        self.began = self.moved_at = now
        self._moved = 0

    @property
    def is_whole(self) -> bool:
        return not self.left if self.chunks is None else self.chunks.done

    def feed(self, data: bytes, at: int, now: float) -> int:
        """Take the body's bytes from `at` on. Return where they end, or raise `HttpError`."""
        if self.chunks is not None:
            at = self.chunks.feed(data, at)
        else:
            end = min(at + self.left, len(data))
            self.content += data[at:end]
            self.left -= end - at
            at = end
        if len(self.content) >= self._moved + _STEP:
            self._moved = len(self.content)
            self.moved_at = now
        return at


class Bodies:
    """All unfinished bodies of a process."""

    def __init__(self, limits: Limits) -> None:
        self._limit = limits.bodies_bytes
        self._stalled_seconds = limits.stalled_seconds
        self._shares: dict[str, Share] = {}
        self.held = 0
        """Bytes of all bodies."""

    def share(self, owner: str) -> Share:
        found = self._shares.get(owner)
        if found is None:
            limit = self._limit
            if owner == UNAUTHENTICATED:
                limit //= _UNAUTHENTICATED_PART
            found = self._shares[owner] = Share(owner, limit)
        return found

    def add(self, body: Body) -> None:
        body.share.bodies.add(body)

    def remove(self, body: Body) -> None:
        share = body.share
        share.bodies.discard(body)
        self.count(body, -len(body.content))
        if not share.bodies:
            self._shares.pop(share.owner, None)

    def count(self, body: Body, grown: int) -> None:
        body.share.held += grown
        self.held += grown

    def make_room(self, growing: Body, now: float) -> None:
        """Drop bodies until all limits hold; `growing` may be among them."""
        while True:
            if growing.share.held > growing.share.limit:
                share = growing.share
            elif self.held > self._limit:
                share = max(self._shares.values(), key=lambda one: one.held)
            else:
                return
            victim = self._victim(share, growing, now)
            victim.drop(
                HttpError(
                    503,
                    "overloaded",
                    "too many request bodies are coming in on too many connections; try again",
                    ((b"Retry-After", b"1"),),
                )
            )
            if victim is growing:
                return

    def _victim(self, share: Share, growing: Body, now: float) -> Body:
        slowest = max(share.bodies, key=lambda body: len(body.content) * (now - body.moved_at))
        if now - slowest.moved_at >= self._stalled_seconds:
            return slowest
        if growing.share is share:
            return growing
        return max(share.bodies, key=lambda body: len(body.content))
