"""Answers of pops and pushes, for whatever the names, ids and payloads are."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarq.model import Popped, Pushed, PushStatus
from monarq.server.encoding import encode, popped_answer, pushed_items
from monarq.store import segments
from monarq.store.message_list import MessageList, MessageRun

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
payloads = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(names, inner),
    max_leaves=5,
).map(lambda value: json.dumps(value, ensure_ascii=False).encode())
headers = st.dictionaries(
    st.sampled_from(["traceparent", "other"]), st.none() | st.integers() | names
).map(lambda value: json.dumps(value).encode())
times = st.integers(0, 253_402_300_799_999_999)


def column(draw: Any, values: st.SearchStrategy[Any], count: int) -> list[Any] | None:
    return draw(st.none() | st.lists(st.none() | values, min_size=count, max_size=count))


@st.composite
def runs(draw: Any, partition_id: int) -> list[MessageRun]:
    """Of one partition: one behind the other, with or without messages missing in between."""
    queue, partition, seq = draw(names), draw(names), draw(st.integers(1, 2**40))
    found: list[MessageRun] = []
    for stored in draw(
        st.lists(st.lists(payloads, min_size=1, max_size=4), min_size=1, max_size=3)
    ):
        data, offsets = segments.pack(stored)
        found.append(
            MessageRun(
                queue,
                partition,
                partition_id,
                seq,
                len(stored),
                draw(times),
                data,
                segments.to_bytes(offsets),
                column(draw, names, len(stored)),
                column(draw, names, len(stored)),
                column(draw, names, len(stored)),
                draw(st.none() | st.just(column(draw, headers, len(stored)))),
            )
        )
        seq += len(stored) + draw(st.integers(0, 2))
    return found


partitions = st.lists(st.integers(1, 2**40), min_size=1, max_size=3, unique=True).flatmap(
    lambda ids: st.tuples(*map(runs, ids)).map(lambda found: [run for of in found for run in of])
)


@pytest.mark.slow
@given(partitions, names, st.none() | names)
def test_a_pop_is_encoded_alike_message_by_message_and_column_by_column(
    found: list[MessageRun], group: str, lease: str | None
) -> None:
    lazy = MessageList(found)
    made = [message for run in found for message in run.messages()]
    answer = popped_answer(Popped(messages=lazy, lease_id=lease), group)
    assert answer == popped_answer(Popped(messages=made, lease_id=lease), group)
    told = json.loads(answer)
    assert (told["leaseId"], told["consumerGroup"]) == (lease, group)
    for message, shown in zip(made, told["messages"], strict=True):
        assert shown["data"] == json.loads(message.payload)
        assert b'"data":' + message.payload + b"," in answer
        assert shown["transactionId"] == message.transaction_id
        assert (shown["id"], shown["seq"]) == (message.id, message.seq)
        assert (shown["queue"], shown["partition"]) == (message.queue, message.partition)
        assert (shown["traceId"], shown["producerSub"]) == (message.trace_id, message.producer)
        assert shown["partitionId"] == str(message.partition_id)
        trace = json.loads(message.headers or b"{}").get("traceparent")
        assert shown.get("traceparent") == (trace if isinstance(trace, str) else None)


def test_a_byte_of_zero_in_names_and_ids_is_not_taken_for_a_gap_between_pieces() -> None:
    data, offsets = segments.pack([b'"\\u0000"', b"{}"])
    ids = ["\0", "1\0"]
    run = MessageRun(
        "\0q", "p\0", 7, 1, 2, 0, data, segments.to_bytes(offsets), ids, ["\0", None], [None, "\0"]
    )
    lazy, made = MessageList([run, run]), [*run.messages()] * 2
    answer = popped_answer(Popped(messages=lazy, lease_id="\0"), "\0g")
    assert answer == popped_answer(Popped(messages=made, lease_id="\0"), "\0g")
    told = json.loads(answer)
    assert [one["transactionId"] for one in told["messages"]] == ids * 2
    assert {one["queue"] for one in told["messages"]} == {"\0q"}
    assert (told["leaseId"], told["consumerGroup"]) == ("\0", "\0g")


@given(st.lists(st.tuples(st.sampled_from(PushStatus), names, st.integers(1, 2**60), names)))
def test_a_push_is_answered_item_by_item(rows: list[tuple[PushStatus, str, int, str]]) -> None:
    pushed = [
        Pushed(status, queue, number, number + 1, transaction_id, None)
        for status, queue, number, transaction_id in rows
    ]
    told = json.loads(encode(pushed_items(pushed)))
    assert [item["index"] for item in told] == list(range(len(rows)))
    for (status, queue, number, transaction_id), item in zip(rows, told, strict=True):
        is_kept = status is not PushStatus.BUFFERED
        assert item["status"] == status.value
        assert (item["queueName"], item["transaction_id"]) == (queue, transaction_id)
        assert item["message_id"] == (f"{number}-{number + 1}" if is_kept else None)
        assert item["partition_id"] == (str(number) if is_kept else None)
        assert item["seq"] == (number + 1 if is_kept else None)
