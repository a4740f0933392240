"""Composes the bytes of answers. What can be made once is made once."""

from __future__ import annotations

from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus

from monarq.server.answers import Headers
from monarq.server.exchange import JSON

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

_BODILESS = frozenset({204, 304})


def _status_lines() -> list[bytes]:
    lines = [b"HTTP/1.1 %d Unknown\r\n" % status for status in range(600)]
    for status in HTTPStatus:
        lines[status] = b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode())
    return lines


STATUS_LINES = _status_lines()


GUARDS: Headers = (
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Cache-Control", b"no-store"),
    (b"Cross-Origin-Resource-Policy", b"same-origin"),
)
"""What a browser must not do with answers: guess their type, keep them, or show them to pages of
other sites. Sent with answers to GET and HEAD: a browser loads and keeps no others."""
HSTS: Headers = ((b"Strict-Transport-Security", b"max-age=86400"),)
"""For a day only: it holds for all ports of the host."""


class Heads:
    """Heads of plain answers: JSON (or nothing), on a connection that is kept. Each is made once
    a second, since it tells the time."""

    __slots__ = ("_guard_lines", "_guards", "_known", "tail", "until")

    _MOST = 4_096

    def __init__(self, *, secure: bool = False) -> None:
        """`secure` if all connections are TLS."""
        self._guards = (*GUARDS, *HSTS) if secure else GUARDS
        self._guard_lines = _lines(self._guards)
        self.until = 0.0
        """The loop's time from which on `refresh` is to be called before anything else."""
        self.tail = b""
        """The end of every head, which tells the time."""
        self._known: dict[int, bytes] = {}

    def refresh(self, now: float) -> None:
        self.tail = b"\r\nDate: %b\r\n\r\n" % formatdate(usegmt=True).encode()
        self.until = now + 1.0
        self._known.clear()

    def plain(self, status: int, length: int, is_get: bool) -> bytes:
        key = length << 11 | is_get << 10 | status
        return self._known.get(key) or self._make(key, status, length, is_get)

    def _make(self, key: int, status: int, length: int, is_get: bool) -> bytes:
        head = STATUS_LINES[status]
        if status not in _BODILESS:
            head += b"Content-Type: %b\r\nContent-Length: %d\r\n" % (JSON, length)
        if is_get:
            head += self._guard_lines
        head = head[:-2] + self.tail
        if len(self._known) < self._MOST:
            self._known[key] = head
        return head

    def guards(self, headers: Headers) -> bytes:
        """The guards as lines, without those that `headers` set themselves."""
        if not headers:
            return self._guard_lines
        own = {name.lower() for name, _ in headers}
        return _lines(guard for guard in self._guards if guard[0].lower() not in own)


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%b: %b\r\n" % header for header in headers)


def compose_head(
    status: int,
    content_type: bytes,
    headers: Iterable[tuple[bytes, bytes]],
    *,
    length: int | None,
    connection: bytes,
    guards: bytes,
    tail: bytes,
) -> bytes:
    """Any head. `length` is None for a body that is sent chunked, or until the connection ends.
    `guards` and `tail` are those of `Heads`."""
    parts = [STATUS_LINES[status]]
    if status not in _BODILESS:
        parts.append(b"Content-Type: %b\r\n" % content_type)
        if length is not None:
            parts.append(b"Content-Length: %d\r\n" % length)
    parts += (_lines(headers), guards)
    if connection:
        parts.append(b"Connection: %b\r\n" % connection)
    return b"".join(parts)[:-2] + tail
