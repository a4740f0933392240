"""Many ranges in one export: exactly what was asked for, and nothing read that was not."""

import asyncio
import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from monarq.clock import ManualClock
from monarq.errors import EncryptionKeyError, InvalidRequestError
from monarq.model import PushItem
from monarq.store import Store
from monarq.store.arrow import message_batch
from monarq.store.batches import segments_of
from monarq.store.exported import MOST_SPANS, ExportedSegment, Span
from monarq.tables import TABLES, arrow_schema
from tests.store.calls import push, push_items, push_many
from tests.store.conftest import OpenStore
from tests.store.scenarios import WORK, every

pytestmark = pytest.mark.smoke

ALL = TABLES["messages"].column_names


async def read(
    store: Store, spans: Sequence[Span], columns: Sequence[str] = ALL, max_bytes: int = 1 << 20
) -> pa.Table:
    batches = [
        message_batch(segments, columns)
        async for segments in segments_of(store, spans, columns, max_bytes=max_bytes)
    ]
    table = pa.Table.from_batches(batches, arrow_schema("messages", columns))
    table.validate(full=True)
    return table


async def pieces(store: Store, columns: Sequence[str], *spans: Span) -> list[ExportedSegment]:
    return (await store.export_messages(spans, columns)).segments


async def whole_plan(store: Store, queue: str) -> list[Span]:
    return [
        (part.partition_id, part.first_seq, part.last_seq)
        for part in await store.export_plan(queue)
    ]


async def some_partitions(store: Store) -> list[tuple[int, int, str]]:
    """Partition id, seq and payload of each message, in segments of all sizes."""
    chance = random.Random(3)
    expected = []
    for number in range(40):
        items = [
            PushItem("q", b'"%d-%d"' % (number, n), f"p{number % 7}")
            for n in range(chance.choice([1, 1, 2, 5, 30]))
        ]
        for item, pushed in zip(items, await push_items(store, *items), strict=True):
            expected.append((pushed.partition_id, pushed.seq, item.payload.decode()))
    return sorted(expected)


async def test_ranges_of_many_partitions_are_read_in_the_order_that_was_asked_for(
    store: Store,
) -> None:
    expected = await some_partitions(store)
    plan = await whole_plan(store, "q")
    chance = random.Random(4)
    for max_bytes in (1, 100, 1_000, 1 << 20):
        spans = []
        for partition_id, first, last in chance.sample(plan, len(plan)):
            start = chance.randint(first, last)
            spans.append((partition_id, start, chance.randint(start, last + 3)))
        table = await read(store, spans, ["message_id", "seq", "payload"], max_bytes)
        wanted = [
            (f"{partition_id}-{seq}", seq, payload)
            for span in spans
            for partition_id, seq, payload in expected
            if partition_id == span[0] and span[1] <= seq <= span[2]
        ]
        assert list(zip(*(c.to_pylist() for c in table.columns), strict=True)) == wanted


async def test_every_column_is_that_of_the_listed_message(store: Store, clock: ManualClock) -> None:
    chance = random.Random(5)
    for number in range(25):
        items = [
            PushItem(
                "q",
                f'{{"n":{number},"t":"größe 🎉"}}'.encode(),
                chance.choice(["a", "b", "ü/ 🎉"]),
                transaction_id=f"t{number}-{n}" if chance.random() < 0.5 else None,
                trace_id=chance.choice([None, "trace"]),
            )
            for n in range(chance.randint(1, 4))
        ]
        await push_items(store, *items, producer=chance.choice([None, "me"]))
        clock.advance(1.5)
    table = await read(store, await whole_plan(store, "q"))
    listed = await every(store.list_messages, "q")
    assert table.to_pylist() == [
        {
            "queue": "q",
            "partition": message.partition,
            "seq": message.seq,
            "message_id": message.id,
            "transaction_id": message.transaction_id,
            "trace_id": message.trace_id,
            "payload": message.payload.decode(),
            "producer": message.producer,
            "created_at": pa.scalar(message.created_at, pa.timestamp("us", "UTC")).as_py(),
        }
        for message in listed
    ]
    for name in ALL:
        one = await read(store, await whole_plan(store, "q"), [name])
        assert one[name].to_pylist() == table[name].to_pylist()


async def test_what_was_not_asked_for_is_not_read(store: Store) -> None:
    pushed = await push(store, "q", b'"x"', transaction_id="t", trace_id="r")
    span = (pushed.partition_id, 1, 1)
    [keys] = await pieces(store, ["queue", "partition", "seq", "message_id", "created_at"], span)
    assert (keys.data, keys.offsets, keys.transaction_ids, keys.trace_ids) == (None,) * 4
    [ids] = await pieces(store, ["transaction_id"], span)
    assert (ids.data, ids.transaction_ids, ids.trace_ids) == (None, ["t"], None)
    [payloads] = await pieces(store, ["payload"], span)
    assert (payloads.data, payloads.transaction_ids) == (b'"x"', None)


@pytest.mark.parametrize("columns", [ALL, ["seq"], ["payload"], ["seq", "transaction_id"]])
async def test_deleted_messages_are_absent_whatever_is_read(
    store: Store, columns: list[str]
) -> None:
    pushed = await push_many(store, "q", 6)
    for n in (0, 3, 5):
        await store.delete_message(pushed[n].partition_id, pushed[n].transaction_id)
    for first, last, seqs in ((1, 6, [2, 3, 5]), (3, 4, [3]), (4, 4, []), (5, 6, [5])):
        table = await read(store, [(pushed[0].partition_id, first, last)], columns)
        assert table.num_rows == len(seqs)
        if "seq" in columns:
            assert table["seq"].to_pylist() == seqs


async def test_keys_of_encrypted_messages_need_no_key_and_payloads_do(
    store: Store, open_another: OpenStore
) -> None:
    await store.configure("q", options={"encryptionEnabled": True})
    await push_many(store, "q", 3)
    plan = await whole_plan(store, "q")
    assert (await read(store, plan))["payload"].to_pylist() == ["1", "2", "3"]
    without = await open_another(keys=())
    assert (await read(without, plan, ["seq"]))["seq"].to_pylist() == [1, 2, 3]
    with pytest.raises(EncryptionKeyError):
        await read(without, plan, ["payload"])


async def test_a_very_large_payload_does_not_take_others_with_it(store: Store) -> None:
    sizes = [10, 900_000, 10, 700_000, 10]
    for size in sizes:
        await push(store, "q", b'"%s"' % (b"x" * size))
    [span] = await whole_plan(store, "q")
    found = [
        sum(len(segment.data or b"") for segment in segments)
        async for segments in segments_of(store, [span], ["payload"], max_bytes=500_000)
    ]
    assert len(found) > 1
    assert sum(found) == sum(sizes) + 2 * len(sizes)
    table = await read(store, [span], ["payload"], 500_000)
    assert [len(text) - 2 for text in table["payload"].to_pylist()] == sizes


@pytest.mark.slow
async def test_more_messages_and_ranges_than_one_call_takes_are_all_read(store: Store) -> None:
    for start in range(0, 3_000, 1_000):
        await push_items(
            store, *(PushItem("q", b"%d" % n, f"p{n}") for n in range(start, start + 1_000))
        )
    await push_many(store, "q", 9_000, partition="large")
    spans = await whole_plan(store, "q")
    assert (await read(store, spans, ["seq"])).num_rows == 12_000
    backwards = [(spans[-1][0], seq, seq) for seq in range(9_000, 4_000, -1)]
    table = await read(store, backwards, ["seq"])
    assert table["seq"].to_pylist() == list(range(9_000, 4_000, -1))


async def test_ranges_of_nothing_are_nothing(store: Store) -> None:
    pushed = await push(store, "q")
    await store.configure("w", kind=WORK)
    item = await push(store, "w")
    spans = [
        (pushed.partition_id, 2, 9),
        (pushed.partition_id, 2, 1),
        (item.partition_id, 1, 9),
        (987_654, 1, 9),
    ]
    assert (await store.export_messages(spans, ALL)).segments == []
    assert (await store.export_messages([], ALL)).segments == []
    assert (await read(store, spans)).num_rows == 0


async def test_ranges_are_cut_to_what_is_kept(store: Store) -> None:
    first = await push_many(store, "q", 3)
    await store.clear_queue("q")
    await push_many(store, "q", 4)
    await store.configure("w", kind=WORK)
    item = await push(store, "w")
    number = first[0].partition_id
    spans = [(number, 6, 9), (number, 1, 2**62), (987_654, 1, 9), (item.partition_id, 1, 9)]
    assert await store.kept_spans([*spans, (number, 2, 3), (number, 8, 9)]) == [
        (number, 6, 7),
        (number, 4, 7),
    ]
    assert await store.kept_spans([]) == []
    with pytest.raises(InvalidRequestError):
        await store.kept_spans([(number, 0, 1)])
    with pytest.raises(InvalidRequestError):
        await store.kept_spans([(1, 1, 1)] * (MOST_SPANS + 1))


async def test_ranges_without_an_end_are_read_to_the_end_at_once(store: Store) -> None:
    """Without a bound this walks 2**62 seqs."""
    [pushed] = await push_many(store, "q", 1)
    spans = [(987_654, 1, 2**62), (pushed.partition_id, 1, 2**62), (987_654, 5, 2**62)]
    async with asyncio.timeout(20):
        assert (await read(store, spans, ["seq"]))["seq"].to_pylist() == [1]


async def test_wrong_ranges_and_columns_are_refused(store: Store) -> None:
    for spans, columns in (
        ([(0, 1, 1)], ALL),
        ([(1, 0, 1)], ALL),
        ([(1, 1, -1)], ALL),
        ([(1, 1, 1)] * (MOST_SPANS + 1), ALL),
        ([(1, 1, 1)], ["nothing"]),
        ([(1, 1, 1)], []),
        ([(1, 1, 1)], ["seq", "seq"]),
    ):
        with pytest.raises(InvalidRequestError):
            await store.export_messages(spans, columns)


async def test_a_plan_for_a_time_has_exactly_what_was_pushed_then(
    store: Store, clock: ManualClock
) -> None:
    times = {}
    for number in range(12):
        partition = f"p{number % 3}"
        for pushed in await push_many(store, "q", 1 + number % 4, partition=partition):
            times[pushed.partition_id, pushed.seq] = clock.now()
        clock.advance(10)
    bounds = [None, 1, *sorted({t + d for t in times.values() for d in (0, 1)}), clock.now()]
    for created_from in bounds:
        for created_to in bounds[:: 5 if created_from else 1]:
            plan = await store.export_plan("q", created_from=created_from, created_to=created_to)
            planned = {
                (part.partition_id, seq)
                for part in plan
                for seq in range(part.first_seq, part.last_seq + 1)
            }
            assert planned == {
                place
                for place, at in times.items()
                if (created_from is None or at >= created_from)
                and (created_to is None or at < created_to)
            }
            assert len(plan) == 3


@pytest.mark.parametrize("bound", [-1, 1.5, "now"])
async def test_a_plan_for_no_time_is_refused(store: Store, bound: object) -> None:
    await push(store, "q")
    with pytest.raises(InvalidRequestError):
        await store.export_plan("q", created_from=bound)  # type: ignore[arg-type]
