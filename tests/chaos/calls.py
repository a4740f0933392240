"""One HTTP/1.1 connection that is opened again when it breaks; as little as the clients need."""

import asyncio
from typing import Any

from msgspec import json


class NoAnswerError(Exception):
    """The call may or may not have been carried out."""


class Connection:
    """One call at a time to one broker."""

    def __init__(self, port: int, timeout_seconds: float = 20) -> None:
        self.port = port
        self._timeout_seconds = timeout_seconds
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and the JSON; raises `NoAnswerError`."""
        content = b"" if body is None else json.encode(body)
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        try:
            async with asyncio.timeout(self._timeout_seconds):
                if self._streams is None:
                    self._streams = await asyncio.open_connection("127.0.0.1", self.port)
                reader, writer = self._streams
                writer.write(head.encode() + content)
                return await self._read(reader)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError) as error:
            self.close()
            raise NoAnswerError(type(error).__name__) from error
        except BaseException:
            self.close()
            raise

    async def _read(self, reader: asyncio.StreamReader) -> tuple[int, Any]:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status = int(head.split(None, 2)[1])
        headers = dict(
            line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line
        )
        content = await reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection") == "close":
            self.close()
        return status, json.decode(content) if content else None

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
