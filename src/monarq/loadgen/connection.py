"""One kept HTTP connection that carries one request at a time, with no more than that needs.

Reads what a well-behaved server answers: a length or chunks, and nothing before its turn.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import cast

OnAnswer = Callable[[int, bytes], None]
"""Takes the status and the body. Status 0: the connection was lost first."""


class ConnectionLostError(Exception):
    """The server closed the connection instead of answering, or what it sent makes no sense."""


def compose_request(
    method: str,
    target: str,
    body: bytes = b"",
    *,
    host: str = "localhost",
    headers: Iterable[tuple[str, str]] = (),
) -> bytes:
    """The bytes of a request. A body is JSON."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body or method in ("POST", "PUT"):
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join((*lines, "\r\n")).encode("latin-1") + body


async def connect(host: str, port: int, *, tls: ssl.SSLContext | None = None) -> LoadConnection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(LoadConnection, host, port, ssl=tls)
    return connection


class LoadConnection(asyncio.Protocol):
    __slots__ = ("_body_at", "_input", "_on_answer", "_transport", "_whole", "is_open")

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._on_answer: OnAnswer | None = None
        self._input = bytearray()
        self._body_at = 0
        self._whole = 0
        """Where the answer ends; 0 while its head is not whole, -1 if it is sent in chunks."""
        self.is_open = False

    def send(self, request: bytes, on_answer: OnAnswer) -> None:
        """Ask; `on_answer` is called once. Not before the last one was answered."""
        if self._transport is None or not self.is_open:
            on_answer(0, b"the connection is closed")
            return
        assert self._on_answer is None, "one request at a time"
        self._on_answer = on_answer
        self._transport.write(request)

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """The same for who can wait. Raises `ConnectionLostError`."""
        future: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

        def answered(status: int, body: bytes) -> None:
            if not future.done():
                future.set_result((status, body))

        self.send(request, answered)
        status, body = await future
        if not status:
            raise ConnectionLostError(body.decode())
        return status, body

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # --- from the transport ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if not self._input:
            # Nearly always the answer comes whole.
            head_end = data.find(b"\r\n\r\n")
            if head_end > 0:
                status, length = _read_head(data[:head_end])
                if head_end + 4 + length == len(data):
                    self._answered(status, data[head_end + 4 :])
                    return
        self._input += data
        self._read_pieces()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        on_answer, self._on_answer = self._on_answer, None
        if on_answer is not None:
            on_answer(0, str(error or "the server closed the connection").encode())

    def _read_pieces(self) -> None:
        held = self._input
        if not self._whole:
            head_end = held.find(b"\r\n\r\n")
            if head_end < 0:
                return
            self._body_at = head_end + 4
            _, length = _read_head(bytes(held[:head_end]))
            self._whole = length if length < 0 else self._body_at + length
        if self._whole < 0:
            body = _joined_chunks(held, self._body_at)
            if body is None:
                return
        elif len(held) < self._whole:
            return
        else:
            body = bytes(held[self._body_at : self._whole])
        status = int(held[9:12])
        held.clear()
        self._whole = 0
        self._answered(status, body)

    def _answered(self, status: int, body: bytes) -> None:
        on_answer, self._on_answer = self._on_answer, None
        if on_answer is None:
            self.close()
            return
        on_answer(status, body)


@lru_cache(maxsize=1024)
def _read_head(head: bytes) -> tuple[int, int]:
    """The status, and how many bytes follow; -1 if they are sent in chunks. Answers of the same
    second and length begin alike."""
    lower = head.lower() + b"\r\n"
    at = lower.find(b"\r\ncontent-length:")
    if at >= 0:
        length = int(lower[at + 17 : lower.find(b"\r", at + 17)])
    else:
        length = -1 if b"\r\ntransfer-encoding:" in lower else 0
    return int(head[9:12]), length


def _joined_chunks(data: bytearray, at: int) -> bytes | None:
    """The body, or None if it is not whole."""
    parts: list[bytes] = []
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(bytes(data[at:end]), 16)
        at = end + 2
        if len(data) < at + size + 2:
            return None
        if not size:
            return b"".join(parts)
        parts.append(bytes(data[at : at + size]))
        at += size + 2
