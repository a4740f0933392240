"""What a job printed, kept within bounds.

Both ends of a long output matter: how it began, and what it said last. So half of the room is
kept for the first bytes and half for the last, and a mark says what is missing between them.
"""

from __future__ import annotations

from collections import deque

DEFAULT_LIMIT = 256 << 10


class BoundedOutput:
    """Takes bytes as they come; `text` gives them back, at most about `limit` of them."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self.size = 0
        """Of all that came."""

    def add(self, data: bytes) -> None:
        self.size += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        data = data[-self._tail_limit :] if self._tail_limit else b""
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail and self._tail_size - len(self._tail[0]) >= self._tail_limit:
            self._tail_size -= len(self._tail.popleft())

    @property
    def cut(self) -> int:
        """How many bytes are missing in the middle."""
        return max(0, self.size - len(self._head) - min(self._tail_size, self._tail_limit))

    @property
    def text(self) -> str:
        """As UTF-8; what is none is shown as U+FFFD, and NUL as its picture, since not every
        store can keep it."""
        tail = b"".join(self._tail)
        if len(tail) > self._tail_limit:
            tail = tail[len(tail) - self._tail_limit :]
        mark = f"\n[… {self.cut:,} bytes cut …]\n".encode() if self.cut else b""
        whole = bytes(self._head) + mark + tail
        return whole.decode("utf-8", "replace").replace("\0", "␀")
