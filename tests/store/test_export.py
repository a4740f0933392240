"""Export: the plan says what is kept, a read gives exactly that, cut where asked, never sealed."""

import random
from array import array

import pytest

from monarq.clock import ManualClock
from monarq.errors import MonarqError, NotFoundError
from monarq.model import PushItem, Segment
from monarq.store import Store
from tests.store.calls import push, push_items, push_many
from tests.store.scenarios import WORK, drain, every, let_time_work

pytestmark = pytest.mark.smoke


def payloads_of(segment: Segment) -> list[bytes]:
    offsets = array("i")
    offsets.frombytes(segment.offsets)
    assert len(offsets) == segment.count + 1
    assert offsets[0] == 0
    assert offsets[-1] == len(segment.data)
    return [segment.data[offsets[n] : offsets[n + 1]] for n in range(segment.count)]


def rows_of(segments: list[Segment]) -> list[tuple[int, bytes]]:
    """Seq and payload of each message; checks that lists fit."""
    rows = []
    for segment in segments:
        assert segment.count > 0
        for values in (
            segment.transaction_ids,
            segment.trace_ids,
            segment.producers,
            segment.headers,
        ):
            assert values is None or len(values) == segment.count
        for n, payload in enumerate(payloads_of(segment)):
            rows.append((segment.first_seq + n, payload))
    return rows


async def test_the_plan_names_all_partitions_with_their_first_and_last_seq(
    store: Store,
) -> None:
    answers = {}
    for n, partition in enumerate(("b", "a", "c"), start=1):
        answers[partition] = (await push_many(store, "q", n, partition=partition))[0]
    await push(store, "other")
    plan = await store.export_plan("q")
    assert [(part.partition, part.first_seq, part.last_seq) for part in plan] == [
        ("b", 1, 1),
        ("a", 1, 2),
        ("c", 1, 3),
    ]
    assert [part.partition_id for part in plan] == [a.partition_id for a in answers.values()]


async def test_the_plan_follows_retention_and_says_when_nothing_is_kept(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    await push_many(store, "q", 3)
    clock.advance(60)
    await push_many(store, "q", 2)
    clock.advance(41)
    await let_time_work(store)
    [part] = await store.export_plan("q")
    assert (part.first_seq, part.last_seq) == (4, 5)
    clock.advance(60)
    await let_time_work(store)
    [part] = await store.export_plan("q")
    assert part.last_seq < part.first_seq
    assert part.first_seq == 6
    assert await store.export_read(part.partition_id, 1, 100) == []


async def test_a_queue_without_partitions_has_an_empty_plan(store: Store) -> None:
    await store.configure("q")
    assert await store.export_plan("q") == []
    await store.configure("w", kind=WORK)
    with pytest.raises(NotFoundError):
        await store.export_plan("missing")


async def test_a_read_gives_every_message_of_the_range_and_no_other_wherever_it_is_cut(
    store: Store,
) -> None:
    chance = random.Random(5)
    expected: list[tuple[int, bytes]] = []
    partition_id = 0
    for size in (3, 1, 7, 2, 10, 1):
        payloads = [b'"%d"' % chance.randrange(10**9) for _ in range(size)]
        answers = await push_items(store, *(PushItem("q", payload) for payload in payloads))
        expected += [(a.seq, p) for a, p in zip(answers, payloads, strict=True)]
        partition_id = answers[0].partition_id
    await push_many(store, "q", 5, partition="other")
    for first in (1, 2, 4, 5, 11, 24):
        for last in (first, first + 1, first + 6, 24, 25, 10**9):
            segments = await store.export_read(partition_id, first, last)
            assert rows_of(segments) == [row for row in expected if first <= row[0] <= last]
            assert {segment.partition_id for segment in segments} == {partition_id}


async def test_an_empty_or_impossible_range_reads_as_nothing_or_is_refused(store: Store) -> None:
    answer = (await push_many(store, "q", 3))[0]
    assert await store.export_read(answer.partition_id, 4, 10) == []
    for partition_id, first, last in (
        (answer.partition_id, 3, 2),
        (answer.partition_id, 0, 2),
        (answer.partition_id, -5, -1),
        (987_654_321, 1, 2),
    ):
        try:
            segments = await store.export_read(partition_id, first, last)
        except MonarqError:
            continue
        assert rows_of(segments) == [
            (seq, b"%d" % seq)
            for seq in (1, 2, 3)
            if first <= seq <= last and partition_id == answer.partition_id
        ]


async def test_a_bounded_read_goes_on_behind_its_last_seq_and_misses_nothing(
    store: Store,
) -> None:
    payloads = [b'"%s"' % (b"x" * (n * 37 % 500)) for n in range(60)]
    partition_id = 0
    for start in range(0, 60, 6):
        answers = await push_items(
            store, *(PushItem("q", payload) for payload in payloads[start : start + 6])
        )
        partition_id = answers[0].partition_id
    for max_bytes in (1, 100, 2_000, 10**6):
        got: list[tuple[int, bytes]] = []
        reads = 0
        while len(got) < 60:
            segments = await store.export_read(partition_id, len(got) + 1, 60, max_bytes=max_bytes)
            assert segments
            assert sum(len(segment.data) for segment in segments[:-1]) <= max_bytes
            got += rows_of(segments)
            reads += 1
        assert got == list(enumerate(payloads, start=1))
        if max_bytes == 10**6:
            assert reads == 1
        if max_bytes == 1:
            assert reads == 10


async def test_a_read_carries_ids_traces_producers_headers_and_times(
    store: Store, clock: ManualClock
) -> None:
    first = await push_items(
        store,
        PushItem("q", b"1", transaction_id="t", trace_id="tr"),
        PushItem("q", b"2", headers=b'{"h":1}'),
        producer="me",
    )
    pushed_at = clock.now()
    clock.advance(5)
    await push_many(store, "q", 2)
    segments = await store.export_read(first[0].partition_id, 1, 4)
    rows = []
    for segment in segments:
        for n in range(segment.count):
            rows.append(  # noqa: PERF401
                (
                    segment.created_at,
                    segment.transaction_ids and segment.transaction_ids[n],
                    segment.trace_ids and segment.trace_ids[n],
                    segment.producers and segment.producers[n],
                    segment.headers and segment.headers[n],
                )
            )
    assert rows == [
        (pushed_at, "t", "tr", "me", None),
        (pushed_at, None, None, "me", b'{"h":1}'),
        (clock.now(), None, None, None, None),
        (clock.now(), None, None, None, None),
    ]


async def test_a_cut_read_gives_each_message_its_own_ids(store: Store) -> None:
    answers = await push_items(
        store,
        *(
            PushItem("q", b"%d" % n, transaction_id=f"t{n}" if n % 3 else None, trace_id=f"x{n}")
            for n in range(1, 9)
        ),
    )
    for first in range(1, 9):
        for last in range(first, 9):
            [segment] = await store.export_read(answers[0].partition_id, first, last)
            seqs = range(first, last + 1)
            assert segment.transaction_ids is None or segment.transaction_ids == [
                f"t{n}" if n % 3 else None for n in seqs
            ]
            assert segment.trace_ids == [f"x{n}" for n in seqs]
            assert payloads_of(segment) == [b"%d" % n for n in seqs]


async def test_a_deleted_message_keeps_its_seq_with_an_empty_payload(store: Store) -> None:
    answers = await push_many(store, "q", 4)
    for n in (1, 3):
        await store.delete_message(answers[n].partition_id, answers[n].transaction_id)
    segments = await store.export_read(answers[0].partition_id, 1, 4)
    assert rows_of(segments) == [(1, b"1"), (2, b""), (3, b"3"), (4, b"")]
    assert rows_of(await store.export_read(answers[0].partition_id, 2, 3)) == [
        (2, b""),
        (3, b"3"),
    ]


async def test_an_encrypted_queue_is_exported_as_it_was_pushed(store: Store) -> None:
    await store.configure("q", options={"encryptionEnabled": True})
    answers = await push_many(store, "q", 5)
    await store.delete_message(answers[1].partition_id, answers[1].transaction_id)
    assert rows_of(await store.export_read(answers[0].partition_id, 1, 5)) == [
        (1, b"1"),
        (2, b""),
        (3, b"3"),
        (4, b"4"),
        (5, b"5"),
    ]
    [segment] = await store.export_read(answers[0].partition_id, 4, 5)
    assert payloads_of(segment) == [b"4", b"5"]


async def test_consumption_does_not_change_what_is_exported(store: Store) -> None:
    answers = await push_many(store, "q", 5)
    before = await store.export_read(answers[0].partition_id, 1, 5)
    await drain(store, "q", 2)
    assert await store.export_read(answers[0].partition_id, 1, 5) == before


async def test_the_export_and_the_list_agree(store: Store, clock: ManualClock) -> None:
    chance = random.Random(9)
    await store.configure("q", options={"retentionSeconds": 50})
    for _ in range(25):
        await push_many(store, "q", chance.randrange(1, 5), partition=f"p{chance.randrange(3)}")
        clock.advance(chance.choice([0, 5]))
        await let_time_work(store)
    exported = []
    for part in await store.export_plan("q"):
        segments = await store.export_read(part.partition_id, part.first_seq, part.last_seq)
        exported += [(part.partition_id, *row) for row in rows_of(segments)]
    listed = [
        (row.partition_id, row.seq, row.payload) for row in await every(store.list_messages, "q")
    ]
    assert exported == listed
    assert listed


async def test_a_read_of_very_many_messages_is_whole(store: Store) -> None:
    await push_many(store, "q", 3_000)
    [part] = await store.export_plan("q")
    rows = rows_of(await store.export_read(part.partition_id, 500, 2_700))
    assert rows == [(n, b"%d" % n) for n in range(500, 2_701)]
