"""A partition's messages as an Arrow IPC stream, made as the client takes it.

In memory is one chunk of segments, whatever the partition holds. Record batches are built in a
thread: the loop never waits for them.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

from monarq.model import PartitionStats, Segment
from monarq.server.answers import HttpError
from monarq.store.contract import Store

CONTENT_TYPE = b"application/vnd.apache.arrow.stream"
CHUNK_BYTES = 4 << 20


class _Writer:
    """Turns segments into the bytes of one stream, piece by piece."""

    def __init__(self, partition: PartitionStats) -> None:
        # Imported here so that nobody pays for it who exports nothing.
        try:
            import pyarrow as pa

            from monarq.store.arrow import SCHEMA, record_batch
        except ImportError:
            raise HttpError(
                501,
                "not_installed",
                "this broker cannot export: it was installed without Arrow; "
                "pip install 'monarq[arrow]' and start it again",
            ) from None

        self._partition = partition
        self._record_batch = record_batch
        self._sink = io.BytesIO()
        self._stream: Any = pa.ipc.new_stream(self._sink, SCHEMA)

    def write(self, segments: list[Segment]) -> bytes:
        for segment in segments:
            batch = self._record_batch(segment, self._partition.queue, self._partition.partition)
            if batch.num_rows:
                self._stream.write_batch(batch)
        return self._taken()

    def close(self) -> bytes:
        self._stream.close()
        return self._taken()

    def _taken(self) -> bytes:
        written = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return written


async def arrow_stream(
    store: Store, partition: PartitionStats, first_seq: int, last_seq: int
) -> AsyncIterator[bytes]:
    """The pieces of the stream. The first one is read before this returns, so that what is
    wrong from the start is an error and not a broken stream."""
    writer = await asyncio.to_thread(_Writer, partition)
    segments = await _read(store, partition, first_seq, last_seq)
    return _pieces(store, partition, writer, segments, last_seq)


async def _read(
    store: Store, partition: PartitionStats, first_seq: int, last_seq: int
) -> list[Segment]:
    return await store.export_read(
        partition.partition_id, first_seq, last_seq, max_bytes=CHUNK_BYTES
    )


async def _pieces(
    store: Store,
    partition: PartitionStats,
    writer: _Writer,
    segments: list[Segment],
    last_seq: int,
) -> AsyncIterator[bytes]:
    while segments:
        piece = await asyncio.to_thread(writer.write, segments)
        next_seq = segments[-1].first_seq + segments[-1].count
        del segments
        if piece:
            yield piece
        del piece
        segments = await _read(store, partition, next_seq, last_seq) if next_seq <= last_seq else []
    yield await asyncio.to_thread(writer.close)
