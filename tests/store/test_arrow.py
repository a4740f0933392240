"""Exported segments as Arrow record batches: the same rows as the messages."""

import datetime

import pyarrow as pa

from monarq.clock import ManualClock
from monarq.model import Push, PushItem
from monarq.store import Store
from monarq.store.arrow import SCHEMA, message_batch
from monarq.store.batches import segments_of
from monarq.store.exported import Span
from monarq.tables import TABLES
from tests.store.calls import unwrap

COLUMNS = TABLES["messages"].column_names


async def read(store: Store, *spans: Span) -> pa.Table:
    batches = [
        message_batch(segments, COLUMNS)
        async for segments in segments_of(store, spans, COLUMNS, max_bytes=1 << 20)
    ]
    table = pa.Table.from_batches(batches, SCHEMA)
    table.validate(full=True)
    return table


async def export(store: Store, queue: str) -> pa.Table:
    plan = await store.export_plan(queue)
    return await read(store, *((part.partition_id, part.first_seq, part.last_seq) for part in plan))


async def test_every_message_is_a_row_with_its_identity_and_payload(
    store: Store, clock: ManualClock
) -> None:
    items = [
        PushItem("q", b'{"n": 1}', "a"),
        PushItem("q", '"grüße 🦋"'.encode(), "a", transaction_id="mine", trace_id="t"),
        PushItem("q", b"null", "b"),
    ]
    pushed = unwrap(await store.push([Push(items, producer="me")]))
    rows = (await export(store, "q")).to_pylist()
    assert [row["seq"] for row in rows] == [1, 2, 1]
    assert [row["message_id"] for row in rows] == [answer.message_id for answer in pushed]
    assert [row["transaction_id"] for row in rows] == [answer.transaction_id for answer in pushed]
    assert [row["payload"].encode() for row in rows] == [item.payload for item in items]
    assert [row["trace_id"] for row in rows] == [None, "t", None]
    assert {row["producer"] for row in rows} == {"me"}
    assert {(row["queue"], row["partition"]) for row in rows} == {("q", "a"), ("q", "b")}
    moment = datetime.datetime.fromtimestamp(clock.now() / 1e6, datetime.UTC)
    assert {row["created_at"] for row in rows} == {moment}


async def test_a_deleted_message_is_no_row(store: Store) -> None:
    request = Push([PushItem("q", str(n).encode()) for n in range(5)])
    pushed = unwrap(await store.push([request]))
    await store.delete_message(pushed[2].partition_id, pushed[2].transaction_id)
    assert (await export(store, "q"))["seq"].to_pylist() == [1, 2, 4, 5]


async def test_a_cut_segment_has_the_rows_that_were_asked_for(store: Store) -> None:
    request = Push([PushItem("q", str(n).encode()) for n in range(1, 101)])
    pushed = unwrap(await store.push([request]))
    table = await read(store, (pushed[0].partition_id, 40, 60))
    assert table["payload"].to_pylist() == [str(n) for n in range(40, 61)]
