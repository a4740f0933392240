"""Sends an answer piece by piece, as fast as the client takes it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from monarq.server.answers import error_answer
from monarq.server.exchange import StreamingResponse
from monarq.server.http.writing import LAST_CHUNK, compose_head

if TYPE_CHECKING:
    from monarq.server.http.connection import Connection

logger = logging.getLogger("monarq.server.http")


async def stream(connection: Connection, answer: StreamingResponse) -> None:
    """Runs as a task, which is cancelled if the client goes away."""
    try:
        await _send(connection, answer)
    finally:
        await _close(answer.chunks)


async def _send(connection: Connection, answer: StreamingResponse) -> None:
    is_chunked = connection.head.is_current
    keep = connection.stays_open() and is_chunked
    is_bare = connection.head.method == "HEAD"
    chunks = answer.chunks
    try:
        # Asked for before anything is sent: an early failure can still be told.
        first = b"" if is_bare else await anext(chunks, b"")
    except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
        connection.answer_instead(error_answer(error))
        return
    start = compose_head(
        answer.status,
        answer.content_type,
        (*answer.headers, (b"Transfer-Encoding", b"chunked")) if is_chunked else answer.headers,
        length=None,
        connection=b"" if keep else b"close",
        guards=connection.guards(answer.headers),
        tail=connection.tail(),
    )
    connection.write(start)
    if not is_bare:
        try:
            _write(connection, first, is_chunked)
            await connection.room()
            async for chunk in chunks:
                _write(connection, chunk, is_chunked)
                await connection.room()
        except Exception:
            # The status is out: all that is left is to break off, so that nobody takes
            # the part for the whole.
            logger.exception("an answer broke off")
            connection.abort()
            return
        if is_chunked:
            connection.write(LAST_CHUNK)
    # It may have begun before the server was told to drain.
    connection.streamed(keep=keep and connection.stays_open())


def _write(connection: Connection, chunk: bytes, is_chunked: bool) -> None:
    if not chunk:
        return
    if is_chunked:
        connection.write(b"%x\r\n" % len(chunk), chunk, b"\r\n")
    else:
        connection.write(chunk)


async def _close(chunks: AsyncIterator[bytes]) -> None:
    close = getattr(chunks, "aclose", None)
    if close is not None:
        await close()
