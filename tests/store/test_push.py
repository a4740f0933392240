"""Push: seqs without holes whoever pushes when, requests whole or not at all, bytes as given."""

import random

import msgspec
import pytest

from monarq.clock import ManualClock
from monarq.errors import InvalidRequestError, MonarqError, QueueFullError
from monarq.model import Push, Pushed, PushItem, PushStatus
from monarq.store import Store
from tests.store.calls import ack, code_of, pop, pop_one, push, push_items, push_many
from tests.store.scenarios import AWKWARD_NAMES, WORK, drain, every, nothing_changes, numbers

pytestmark = pytest.mark.smoke


def pushed_of(outcomes: list[list[Pushed] | MonarqError]) -> list[Pushed]:
    answers: list[Pushed] = []
    for outcome in outcomes:
        assert not isinstance(outcome, MonarqError), outcome
        answers += outcome
    return answers


async def test_seq_counts_from_1_without_a_hole_in_each_partition(store: Store) -> None:
    for expected in (1, 2, 3):
        for partition in ("a", "b"):
            assert (await push(store, "q", partition=partition)).seq == expected


async def test_items_of_one_request_get_their_seqs_in_the_order_given(store: Store) -> None:
    items = [PushItem("q", b"%d" % n, partition=f"p{n % 3}") for n in range(30)]
    answers = await push_items(store, *items)
    assert [answer.seq for answer in answers] == [n // 3 + 1 for n in range(30)]
    assert [answer.queue for answer in answers] == ["q"] * 30
    for partition in range(3):
        rows = await every(store.list_messages, "q", partition=f"p{partition}")
        assert [int(row.payload) for row in rows] == list(range(partition, 30, 3))


async def test_requests_of_one_call_are_stored_as_if_one_after_the_other(store: Store) -> None:
    calls = [Push([PushItem("q", b"%d" % (2 * n)), PushItem("q", b"%d" % (2 * n + 1))])
             for n in range(5)]  # fmt: skip
    answers = pushed_of(await store.push(calls))
    assert [answer.seq for answer in answers] == list(range(1, 11))
    assert numbers(await drain(store, "q")) == list(range(10))


async def test_an_empty_call_is_answered_with_nothing(store: Store) -> None:
    assert await store.push([]) == []
    assert await store.pop([]) == []
    assert await store.ack([]) == []
    assert await store.renew([]) == []
    assert await store.transaction([]) == []


async def test_partition_numbers_are_unique_over_all_queues(store: Store) -> None:
    answers = [
        await push(store, queue, partition=partition)
        for queue in ("q1", "q2", "q3")
        for partition in ("Default", "a", "b")
    ]
    assert len({answer.partition_id for answer in answers}) == 9


async def test_the_answer_names_the_message_by_its_partition_and_seq(store: Store) -> None:
    await push(store, "q")
    answer = await push(store, "q")
    assert answer.status is PushStatus.QUEUED
    assert answer.message_id == answer.transaction_id == f"{answer.partition_id}-2"
    stored = await store.get_message(answer.partition_id, answer.transaction_id)
    assert (stored.seq, stored.id) == (2, answer.message_id)


async def test_a_push_makes_a_missing_queue_ordered_with_its_labels(store: Store) -> None:
    await push(store, "q", namespace="ns", task="t")
    queue = await store.get_queue("q")
    assert (queue.kind, queue.namespace, queue.task) == ("ordered", "ns", "t")


async def test_a_push_does_not_relabel_a_queue_that_exists(store: Store) -> None:
    await push(store, "q", namespace="ns", task="t")
    await push(store, "q", namespace="other", task="other")
    queue = await store.get_queue("q")
    assert (queue.namespace, queue.task) == ("ns", "t")


async def test_trace_producer_and_headers_come_back_with_the_message(store: Store) -> None:
    headers = '{"a":[1,2,{"b":null}],"ü":"\\u0000"}'.encode()
    items = [
        PushItem("q", b"1", trace_id="trace-1", headers=headers),
        PushItem("q", b"2"),
        PushItem("q", b"3", trace_id="trace-3"),
        PushItem("q", b"4", headers=b"{}"),
    ]
    answers = await push_items(store, *items, producer="me")
    assert [answer.trace_id for answer in answers] == ["trace-1", None, "trace-3", None]
    await push(store, "q", b"5")
    popped = (await pop(store, "q", 10)).messages
    stored = await every(store.list_messages, "q")
    for rows in (popped, stored):
        assert [row.trace_id for row in rows] == ["trace-1", None, "trace-3", None, None]
        assert [row.headers for row in rows] == [headers, None, None, b"{}", None]
        assert [row.producer for row in rows] == ["me"] * 4 + [None]


async def test_each_message_of_a_big_plain_batch_has_its_producer(store: Store) -> None:
    await push_items(store, *(PushItem("q", b"1") for _ in range(50)), producer="me")
    await push_many(store, "q", 2)
    rows = await every(store.list_messages, "q")
    assert [row.producer for row in rows] == ["me"] * 50 + [None] * 2


PAYLOADS = [
    b"0",
    b"null",
    b"true",
    b"-1.5e-300",
    b'""',
    b'"\\u0000"',
    b'"a\\u0000b"',
    b'"\\ud83d\\ude00"',
    '"😀 ünïcödé"'.encode(),
    b"[]",
    b"{}",
    b'{"a":1,"a":2}',
    b' { "kept" : "as it comes" } \n',
    b"[" * 500 + b"]" * 500,
    b"123456789012345678901234567890",
]


async def test_a_payload_of_any_json_type_comes_back_byte_for_byte(store: Store) -> None:
    await store.configure("w", kind=WORK)
    for payload in PAYLOADS:
        answer = await push(store, "q", payload)
        message, lease = await pop_one(store, "q")
        assert message.payload == payload
        await ack(store, message, lease)
        stored = await store.get_message(answer.partition_id, answer.transaction_id)
        assert stored.payload == payload
        await push(store, "w", payload)
        item, lease = await pop_one(store, "w")
        assert item.payload == payload
        await ack(store, item, lease, result=payload)
        assert (await store.get_item(item.id)).payload == payload
        [attempt] = (await store.get_item(item.id)).history
        assert attempt.result == payload


async def test_payloads_from_one_byte_to_a_megabyte_come_back_whole_and_in_order(
    store: Store,
) -> None:
    chance = random.Random(1)
    sizes = [0, 1, 100, 65_535, 524_288 - 2, 524_288, 1_000_000, 3]
    payloads = [b"7", *(b'"%s"' % (b"%x" % chance.getrandbits(4 * n + 4))[:n] for n in sizes)]
    await push_items(store, *(PushItem("q", payload) for payload in payloads))
    assert [message.payload for message in await drain(store, "q", 3)] == payloads


async def test_more_messages_than_a_segment_holds_are_pushed_and_popped_in_order(
    store: Store,
) -> None:
    answers = await push_many(store, "q", 2_500)
    assert [answer.seq for answer in answers] == list(range(1, 2_501))
    assert numbers(await pop(store, "q", 2_500)) == list(range(1, 2_501))


async def test_what_is_cut_into_segments_and_what_comes_beside_it_keeps_all_it_was_pushed_with(
    store: Store,
) -> None:
    def items(partition: str, count: int, size: int) -> list[PushItem]:
        return [
            PushItem(
                "q",
                b'"%d%s"' % (n, b"x" * (size + n % 7)),
                partition,
                transaction_id=f"{partition}.{n}" if n % 2 else None,
                trace_id=f"trace {n}" if n % 3 else None,
            )
            for n in range(count)
        ]

    # Too many messages for one segment, too many bytes of many and of few, and small ones between.
    places = [("b", 1, 5), ("a", 2_100, 1), ("d", 3, 30), ("c", 600, 1_000), ("b", 2, 9)]
    places[3:3] = [("e", 3, 300_000), ("g", 1, 600_000), ("f", 15, 5_000), ("h", 16, 7)]
    calls = [Push(items(*place)) for place in places]
    calls[-1] = Push([msgspec.structs.replace(one, transaction_id=None) for one in calls[-1].items])
    pushed_of(await store.push(calls))
    for partition in "abcdefgh":
        given = [one for call in calls for one in call.items if one.partition == partition]
        kept = await every(store.list_messages, "q", partition=partition)
        assert [row.payload for row in kept] == [one.payload for one in given]
        assert [row.trace_id for row in kept] == [one.trace_id for one in given]
        own = [row.transaction_id if one.transaction_id else None
               for row, one in zip(kept, given, strict=True)]  # fmt: skip
        assert own == [one.transaction_id for one in given]


async def test_an_awkward_name_can_be_pushed_to_popped_from_found_and_deleted(
    store: Store,
) -> None:
    await push(store, "bystander", b"3")
    for name in AWKWARD_NAMES:
        answer = await push(
            store, name, b"1", partition=name, transaction_id=name, trace_id=name, namespace=name
        )
        again = await push(store, name, b"2", partition=name, transaction_id=name)
        assert (again.status, again.seq) == (PushStatus.DUPLICATE, 1)
        message, _ = await pop_one(store, name, partition=name, group=name, consumer=name)
        assert (message.queue, message.partition, message.transaction_id) == (name, name, name)
        assert (await store.get_message(answer.partition_id, name)).groups == {name: "leased"}
        popped = await pop(store, namespace=name, group="g")
        assert [m.queue for m in popped.messages] == [name]
        assert [q.name for q in (await store.list_queues(namespace=name)).rows] == [name]
        groups = [g.name for g in (await store.list_groups(queue=name)).rows]
        assert groups == sorted([name, "g"])
        assert (await store.delete_queue(name)).deleted
        assert [q.name for q in (await store.list_queues()).rows] == ["bystander"]


async def test_names_that_differ_in_case_width_or_composition_are_different(store: Store) -> None:
    names = ["Queue", "queue", "QUEUE", "queue ", " queue", "é", "e\u0301", "ｑueue", "ß", "ss"]
    for n, name in enumerate(names):
        answer = await push(store, name, b"%d" % n)
        assert (answer.status, answer.seq) == (PushStatus.QUEUED, 1)
    for n, name in enumerate(names):
        assert numbers(await pop(store, name)) == [n]


# --- whole or not at all ---


async def test_a_request_with_one_bad_item_stores_none_and_hurts_no_other(store: Store) -> None:
    await push(store, "q")
    good = Push([PushItem("q", b"1"), PushItem("new-good", b"1", partition="p")])
    bad = Push([PushItem("q", b"2"), PushItem("new-bad", b"2"), PushItem("q", b"")])
    outcomes = await store.push([good, bad, good])
    assert [code_of(outcome) for outcome in outcomes] == [None, "invalid_request", None]
    assert [row.seq for row in await every(store.list_messages, "q")] == [1, 2, 3]
    assert [queue.name for queue in (await store.list_queues()).rows] == ["new-good", "q"]


async def test_an_item_that_only_the_store_can_refuse_takes_its_whole_request_with_it(
    store: Store,
) -> None:
    """The kind of a queue is known to the store alone."""
    await store.configure("work", kind=WORK)
    wrong = Push([PushItem("q", b"2"), PushItem("work", b"2", partition="p")])
    wrong_too = Push([PushItem("q", b"3"), PushItem("q", b"3", priority=1)])
    right = Push([PushItem("q", b"1"), PushItem("work", b"1", priority=1)])
    outcomes = await store.push([wrong, right, wrong_too, right])
    assert [code_of(outcome) for outcome in outcomes] == [
        "invalid_request",
        None,
        "invalid_request",
        None,
    ]
    assert [row.payload for row in await every(store.list_messages, "q")] == [b"1", b"1"]
    assert [row.payload for row in await every(store.list_items, "work")] == [b"1", b"1"]


async def test_a_refused_request_makes_no_queue_no_partition_and_burns_no_seq(
    store: Store,
) -> None:
    await store.configure("small", options={"maxSize": 2})
    await store.configure("work", kind=WORK)
    await push(store, "small")
    async with nothing_changes(store):
        for items in (
            [PushItem("new", b"1"), *[PushItem("small", b"1")] * 2],
            [PushItem("small", b"1", partition="new"), PushItem("work", b"1", partition="p")],
            [PushItem("new", b"1", priority=3)],
        ):
            with pytest.raises((QueueFullError, InvalidRequestError)):
                await push_items(store, *items)
    assert (await push(store, "small")).seq == 2


@pytest.mark.parametrize("field", ["priority", "run_at", "delay_seconds", "max_attempts"])
async def test_what_is_for_work_queues_is_refused_by_an_ordered_one(
    store: Store, field: str
) -> None:
    await push(store, "q")
    async with nothing_changes(store):
        with pytest.raises(InvalidRequestError, match=field):
            await push(store, "q", **{field: 5})


async def test_a_work_queue_refuses_partitions(store: Store) -> None:
    await store.configure("w", kind=WORK)
    async with nothing_changes(store):
        with pytest.raises(InvalidRequestError, match="partition"):
            await push(store, "w", partition="p")
    await push(store, "w", partition="Default")


async def test_a_paused_queue_takes_pushes(store: Store) -> None:
    await push(store, "q")
    await store.pause_queue("q")
    assert (await push(store, "q")).status is PushStatus.QUEUED


async def test_nothing_of_a_refused_request_sticks_to_the_next_one_of_its_call(
    store: Store,
) -> None:
    rich = PushItem("q", b"1", transaction_id="t", trace_id="tr", headers=b'{"a":1}')
    refused = Push([rich, rich, PushItem("q", b"2", priority=1)], "producer")
    outcomes = await store.push([refused, Push([PushItem("q", b"3")]), refused])
    assert [code_of(outcome) for outcome in outcomes] == [
        "invalid_request",
        None,
        "invalid_request",
    ]
    [row] = await every(store.list_messages, "q")
    assert (row.seq, row.payload, row.trace_id) == (1, b"3", None)
    assert (row.headers, row.producer, row.transaction_id) == (None, None, row.id)
    assert (await push(store, "q", transaction_id="t")).status is PushStatus.QUEUED


# --- time ---


async def test_created_at_is_the_time_of_the_push(store: Store, clock: ManualClock) -> None:
    times = []
    for seconds in (0, 1.5, 0.000001, 3600):
        times.append(clock.advance(seconds))
        await push(store, "q")
    assert [row.created_at for row in await every(store.list_messages, "q")] == times
    assert [message.created_at for message in await drain(store, "q")] == times


async def test_created_at_never_falls_within_a_partition_when_the_clock_does(
    store: Store, clock: ManualClock
) -> None:
    first = clock.now()
    await push(store, "q", partition="a")
    earlier = clock.advance(-100)
    await push(store, "q", partition="a")
    await push(store, "q", partition="b")
    later = clock.advance(200)
    await push(store, "q", partition="a")
    times = {
        partition: [row.created_at for row in await every(
            store.list_messages, "q", partition=partition)]
        for partition in "ab"
    }  # fmt: skip
    assert times == {"a": [first, first, later], "b": [earlier]}
