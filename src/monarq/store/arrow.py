"""Segments as Arrow record batches: the payloads are not copied, and no message is looped over.

Needs pyarrow (the extra `arrow`); nothing else in the store does.
"""

from __future__ import annotations

from array import array

import pyarrow as pa
import pyarrow.compute as pc

from monarq.model import Segment

SCHEMA = pa.schema(
    [
        pa.field("queue", pa.string(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("message_id", pa.string(), nullable=False),
        pa.field("transaction_id", pa.string(), nullable=False),
        pa.field("trace_id", pa.string()),
        pa.field("payload", pa.string(), nullable=False),
        pa.field("producer", pa.string()),
        pa.field("created_at", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)


def record_batch(segment: Segment, queue: str, partition: str) -> pa.RecordBatch:
    """The messages of a segment, one a row, without the deleted ones."""
    count = segment.count
    seqs = pa.Array.from_buffers(
        pa.int64(),
        count,
        [None, pa.py_buffer(array("q", range(segment.first_seq, segment.first_seq + count)))],
    )
    payloads = pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(segment.offsets), pa.py_buffer(segment.data)]
    )
    ids = pc.binary_join_element_wise(str(segment.partition_id), seqs.cast(pa.string()), "-")
    batch = pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(queue), count),
            pa.repeat(pa.scalar(partition), count),
            seqs,
            ids,
            ids
            if segment.transaction_ids is None
            else pc.coalesce(pa.array(segment.transaction_ids, pa.string()), ids),
            _texts(segment.trace_ids, count),
            payloads,
            _texts(segment.producers, count),
            pa.repeat(pa.scalar(segment.created_at, SCHEMA.field("created_at").type), count),
        ],
        schema=SCHEMA,
    )
    lengths = pc.binary_length(payloads)
    if pc.min(lengths).as_py() == 0:
        batch = batch.filter(pc.greater(lengths, 0))
    return batch


def _texts(values: list[str | None] | None, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, pa.string())
    return pa.array(values, pa.string())
