"""Exports as Arrow IPC streams, made as the client takes them.

In memory is one piece a stream, whatever is exported, and few are made at the same time: a slow
client holds nobody up, and a quick one leaves the broker to the others. Record batches are built
in a thread: the loop never waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from monarq.errors import OverloadedError
from monarq.server.answers import HttpError

if TYPE_CHECKING:
    import pyarrow as pa

CONTENT_TYPE = b"application/vnd.apache.arrow.stream"
# Small enough that neither reading, building nor writing one keeps others from the loop for long:
# with a third more, exports are a tenth faster, and some pushes meanwhile take twice as long.
CHUNK_BYTES = 768 << 10
CHUNK_MESSAGES = 3 << 10

_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"

PIECE_SECONDS = 30.0
"""How long the store may search for the next piece."""

Slot = Callable[[], AbstractAsyncContextManager[None]]
"""Waits for the reader's turn to have a piece made."""
Build = Callable[[Any], "pa.RecordBatch"]
"""Makes a batch of what was read."""


def require_arrow() -> None:
    # Looked for only here, so that nobody pays for it who exports nothing.
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise HttpError(
            501,
            "not_installed",
            "this broker cannot export: it was installed without Arrow; "
            "pip install 'monarq[arrow]' and start it again",
        ) from None


async def arrow_stream(
    schema: pa.Schema, pieces: AsyncGenerator[Any], build: Build, slot: Slot
) -> AsyncIterator[bytes]:
    """The pieces of the stream. The first one is read before this returns, so that what is
    wrong from the start is an error and not a broken stream."""
    make = partial(_next, pieces, build, slot)
    try:
        first = await make()
    except BaseException:
        await pieces.aclose()
        raise
    return _stream(schema, pieces, first, make)


async def _stream(
    schema: pa.Schema, pieces: AsyncGenerator[Any], piece: Any, make: Callable[[], Any]
) -> AsyncGenerator[bytes]:
    try:
        yield _bytes(schema.serialize())
        while piece is not None:
            if piece:
                yield _bytes(piece)
            piece = await make()
        yield _END
    finally:
        await pieces.aclose()


async def _next(pieces: AsyncGenerator[Any], build: Build, slot: Slot) -> Any:
    """The next piece of the stream; empty if its rows are all gone, None at the end."""
    async with slot():
        try:
            async with asyncio.timeout(PIECE_SECONDS):
                read = await anext(pieces, None)
        except TimeoutError:
            raise OverloadedError(
                f"the store found no rows within {PIECE_SECONDS:g} s: ask for fewer"
            ) from None
        return None if read is None else await asyncio.to_thread(_serialized, build, read)


def _serialized(build: Build, read: Any) -> Any:
    batch = build(read)
    return batch.serialize() if batch.num_rows else b""


def _bytes(buffer: Any) -> bytes:
    """As it is: what writes it takes anything that has bytes."""
    return memoryview(buffer)  # type: ignore[return-value]
