"""Takes a chunked body apart.

As strict as the head: sizes are plain hexadecimal, lines end in CR LF. Extensions and trailers
mean nothing to us; they are read over, within bounds.
"""

from __future__ import annotations

import re

from monarq.server.answers import HttpError

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?")
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\x00-\x08\x0a-\x1f\x7f]*")
_LONGEST_LINE = 4_096
_MOST_TRAILERS = 100


class ChunkedBody:
    """A body that is coming in. `feed` until `done`; `content` is what it held."""

    __slots__ = ("_in_trailers", "_left", "_limit", "_line", "_trailers", "content", "done")

    def __init__(self, limit: int) -> None:
        self.content = bytearray()
        self.done = False
        self._limit = limit
        self._left = 0
        """Bytes of the chunk that are to come, with its CR LF."""
        self._line = bytearray()
        """Of a size or a trailer, as far as it is there."""
        self._in_trailers = False
        self._trailers = 0

    def feed(self, data: bytes, at: int = 0) -> int:
        """Take what belongs to the body from `at` on; returns where it ends, raises `HttpError`."""
        size = len(data)
        while at < size and not self.done:
            at = self._take_chunk(data, at) if self._left else self._take_line(data, at)
        return at

    def _take_chunk(self, data: bytes, at: int) -> int:
        if self._left > 2:
            piece = data[at : at + self._left - 2]
            self.content += piece
            self._left -= len(piece)
            return at + len(piece)
        if data[at] != (0x0D if self._left == 2 else 0x0A):
            raise _refused("a chunk is longer than its size says")
        self._left -= 1
        return at + 1

    def _take_line(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at)
        stop = end + 1 if end >= 0 else len(data)
        self._line += data[at:stop]
        if len(self._line) > _LONGEST_LINE:
            raise _refused("a line of the chunked body is too long")
        if end >= 0:
            line = bytes(self._line)
            self._line.clear()
            if not line.endswith(b"\r\n"):
                raise _refused("a line of the chunked body ends in a bare LF")
            self._end_line(line[:-2])
        return stop

    def _end_line(self, line: bytes) -> None:
        if self._in_trailers:
            if not line:
                self.done = True
                return
            self._trailers += 1
            if self._trailers > _MOST_TRAILERS or not _TRAILER.fullmatch(line):
                raise _refused("the chunked body's trailers are malformed or too many")
            return
        match = _SIZE.fullmatch(line)
        if match is None:
            raise _refused("a chunk's size is malformed")
        size = int(match[1], 16)
        if len(self.content) + size > self._limit:
            raise HttpError(413, "body_too_large", f"at most {self._limit} bytes are taken")
        if size:
            self._left = size + 2
        else:
            self._in_trailers = True


def _refused(message: str) -> HttpError:
    return HttpError(400, "invalid_request", message)
