"""Composes the bytes of answers. What can be made once is made once."""

from __future__ import annotations

from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus

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


class Heads:
    """Heads of plain answers: JSON (or nothing), on a connection that is kept. Each is made once
    a second, since it tells the time."""

    __slots__ = ("_known", "tail", "until")

    _MOST = 4_096

    def __init__(self) -> None:
        self.until = 0.0
        """The loop's time from which on `refresh` is to be called before anything else."""
        self.tail = b""
        """The end of every head, which tells the time."""
        self._known: dict[int, bytes] = {}

    def refresh(self, now: float) -> None:
        self.tail = b"\r\nDate: %b\r\n\r\n" % formatdate(usegmt=True).encode()
        self.until = now + 1.0
        self._known.clear()

    def plain(self, status: int, length: int) -> bytes:
        key = length << 10 | status
        return self._known.get(key) or self._make(key, status, length)

    def _make(self, key: int, status: int, length: int) -> bytes:
        line = STATUS_LINES[status]
        if status in _BODILESS:
            head = line[:-2] + self.tail
        else:
            head = b"%bContent-Type: %b\r\nContent-Length: %d%b" % (line, JSON, length, self.tail)
        if len(self._known) < self._MOST:
            self._known[key] = head
        return head


def compose_head(
    status: int,
    content_type: bytes,
    headers: Iterable[tuple[bytes, bytes]],
    *,
    length: int | None,
    connection: bytes,
    tail: bytes,
) -> bytes:
    """Any head. `length` is None for a body that is sent chunked, or until the connection ends."""
    parts = [STATUS_LINES[status]]
    if status not in _BODILESS:
        parts.append(b"Content-Type: %b\r\n" % content_type)
        if length is not None:
            parts.append(b"Content-Length: %d\r\n" % length)
    parts += [b"%b: %b\r\n" % (name, value) for name, value in headers]
    if connection:
        parts.append(b"Connection: %b\r\n" % connection)
    parts[-1] = parts[-1][:-2]
    parts.append(tail)
    return b"".join(parts)
