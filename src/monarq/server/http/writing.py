"""Composes the bytes of answers. What can be made once is made once."""

from __future__ import annotations

import asyncio
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

PLAIN = [
    b"%bContent-Type: %b\r\nContent-Length: " % (line, JSON) if status not in _BODILESS else b""
    for status, line in enumerate(STATUS_LINES)
]
"""By status: the head of an answer in JSON on a connection that is kept, up to its length."""

EMPTY = b"HTTP/1.1 204 No Content"
"""The head of a 204 on a connection that is kept, up to what `Dates.tail` ends a head with."""


class Dates:
    """The end of every head, which tells the time: the same for a second."""

    __slots__ = ("_loop", "tail", "until")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.until = 0.0
        """The loop's time at which `tail` is to be made anew by `refresh`."""
        self.tail = b""

    def refresh(self, now: float) -> None:
        self.tail = b"\r\nDate: %b\r\n\r\n" % formatdate(usegmt=True).encode()
        self.until = now + 1.0


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
