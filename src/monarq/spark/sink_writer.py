"""Writes the rows of one task: reads batches, puts pushes together and sends them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from monarq.spark.sink_columns import SinkColumns
from monarq.spark.sink_http import BrokerLanes, Written
from monarq.spark.sink_options import SinkOptions
from monarq.spark.sink_requests import pushes, requests
from monarq.spark.sink_rows import RowReader
from monarq.spark.sink_store import sink_store
from monarq.spark.transaction_ids import Digests

if TYPE_CHECKING:
    from pyarrow import RecordBatch


def write_rows(
    options: SinkOptions,
    columns: SinkColumns,
    batches: Iterable[RecordBatch],
    *,
    scope: str,
    task: int,
) -> tuple[Written, Digests]:
    """What became of the rows, and what was hashed of them."""
    lanes = options.requests_in_flight if options.is_http else 1
    reader = RowReader(options, columns, lanes=lanes, scope=scope, task=task)
    if options.is_http:
        written = _to_broker(options, reader, batches)
    else:
        written = _to_store(options, reader, batches)
    return written, reader.hashed.told()


def _to_broker(options: SinkOptions, reader: RowReader, batches: Iterable[RecordBatch]) -> Written:
    with BrokerLanes(
        options.url, options.token, options.requests_in_flight, options.retry_seconds
    ) as lanes:
        for batch in batches:
            for rows in reader.read(batch):
                for request in requests(rows, options.messages_per_request):
                    lanes.send(rows.lane, request)
    return lanes.written


def _to_store(options: SinkOptions, reader: RowReader, batches: Iterable[RecordBatch]) -> Written:
    written = Written()
    store = sink_store(options.url, options.encryption_keys)
    for batch in batches:
        for rows in reader.read(batch):
            for push in pushes(rows, options.messages_per_request):
                store.push(push, written, options.retry_seconds)
    return written
