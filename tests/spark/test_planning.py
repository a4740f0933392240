"""What is planned for Spark, as plain arithmetic: positions, splits, shares. No Spark runs here."""

import json
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarq.errors import DataLossError, InvalidRequestError
from monarq.spark.access import SeqRange
from monarq.spark.admission import admitted, reachable, without_gone
from monarq.spark.positions import (
    Positions,
    read_log_offset,
    read_offset,
    write_log_offset,
    write_offset,
)
from monarq.spark.ranges import Lane, ranges_between
from monarq.spark.splits import cut, split_count

SEQS = st.integers(0, 2**53)
POSITIONS = st.dictionaries(
    st.text(min_size=1), st.dictionaries(st.integers(1, 2**53), SEQS, max_size=20), max_size=3
)
SMALL = st.dictionaries(
    st.sampled_from(["a", "b"]),
    st.dictionaries(st.integers(1, 9), st.integers(0, 9), max_size=9),
    max_size=2,
)


@given(POSITIONS)
def test_an_offset_says_the_positions_and_equal_ones_look_alike(positions: Positions) -> None:
    offset = json.loads(json.dumps(write_offset(positions)))
    assert read_offset(offset) == positions
    turned = {
        queue: dict(reversed(of_queue.items())) for queue, of_queue in reversed(positions.items())
    }
    assert json.dumps(write_offset(turned)) == json.dumps(write_offset(positions))


def test_the_offset_of_a_hundred_thousand_partitions_is_small() -> None:
    positions = {"orders": {1000 + n: 1 + n * 7919 % 500 for n in range(100_000)}}
    text = json.dumps(write_offset(positions))
    assert len(text) < 350_000
    assert read_offset(json.loads(text)) == positions


@pytest.mark.parametrize(
    "offset",
    [
        {},
        {"version": 2, "table": "messages", "queues": {}},
        {"version": 1, "table": "attempts", "queues": {}},
        {"version": 1, "table": "messages"},
        {"version": 1, "table": "messages", "queues": {"a": "no base64"}},
        {"version": 1, "table": "messages", "queues": {"a": "eJwDAAAAAAE"}},
        {"version": 1, "table": "messages", "queues": {"a": 7}},
        {"version": 1, "table": "messages", "queues": []},
    ],
)
def test_what_is_no_offset_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        read_offset(offset)


def test_the_offset_of_a_log_says_its_position() -> None:
    for position in (None, "0000000000000000042"):
        offset = json.loads(json.dumps(write_log_offset("attempts", position)))
        assert read_log_offset(offset, "attempts") == position
    with pytest.raises(InvalidRequestError, match="not of 'deliveries'"):
        read_log_offset(offset, "deliveries")


# --- splits ------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(-1, 200)), max_size=30),
    st.none() | st.integers(1, 40),
    st.integers(1, 300),
)
def test_splits_cover_every_message_once_and_are_of_equal_size(
    lengths: list[tuple[int, int]], min_splits: int | None, messages_per_split: int
) -> None:
    ranges = [
        SeqRange("orders", at, f"p-{at}", first, first + length - 1)
        for at, (first, length) in enumerate(lengths)
    ]
    splits = cut(ranges, min_splits=min_splits, messages_per_split=messages_per_split)
    expected = [(one.partition_id, seq) for one in ranges for seq in _seqs(one)]
    assert [(one.partition_id, seq) for s in splits for one in s.ranges for seq in _seqs(one)] == (
        expected
    )
    sizes = [split.expected for split in splits]
    assert sum(sizes) == len(expected)
    if sizes:
        assert max(sizes) - min(sizes) <= 1
        assert max(sizes) <= messages_per_split
        assert len(sizes) >= min(min_splits or 1, len(expected))
        assert all(one.first_seq <= one.last_seq for split in splits for one in split.ranges)


def _seqs(one: SeqRange) -> range:
    return range(one.first_seq, one.last_seq + 1)


def test_few_messages_are_not_spread_over_the_cores() -> None:
    assert split_count(9_000, None, 500_000) == 1
    assert split_count(10_000_000, None, 500_000) == 20
    assert split_count(3, 8, 500_000) == 3


def test_a_hundred_thousand_partitions_are_planned_quickly() -> None:
    lanes = {"orders": [Lane(n, f"customer-{n}", 1, 10) for n in range(1, 100_001)]}
    began = time.process_time()
    start: Positions = {"orders": dict.fromkeys(range(1, 100001), 0)}
    end, _ = admitted(start, reachable(start, lanes), 999_999, 0)
    ranges = ranges_between(
        read_offset(write_offset(start)), read_offset(write_offset(end)), lanes,
        fail_on_data_loss=True,
    )  # fmt: skip
    splits = cut(ranges, min_splits=8, messages_per_split=500_000)
    assert len(splits) == 8
    # Of the time that may pass (2 s), on whatever machine: a guard against quadratic steps only.
    assert time.process_time() - began < 20


# --- how much a batch takes --------------------------------------------------------------


@given(SMALL, SMALL, st.integers(1, 40), st.integers(0, 100))
def test_a_limit_is_kept_and_used_up(
    start: Positions, further: Positions, limit: int, turn: int
) -> None:
    end = {
        queue: {one: max(last, start.get(queue, {}).get(one, 0)) for one, last in of_queue.items()}
        for queue, of_queue in further.items()
    }
    taken, _ = admitted(start, end, limit, turn)
    assert _distance(start, taken) == min(limit, _distance(start, end))
    for queue, of_queue in taken.items():
        for one, last in of_queue.items():
            begun = start.get(queue, {}).get(one, 0)
            assert begun <= last <= end.get(queue, {}).get(one, begun)


def _distance(start: Positions, end: Positions) -> int:
    return sum(
        last - start.get(queue, {}).get(one, 0)
        for queue, of_queue in end.items()
        for one, last in of_queue.items()
    )


def test_no_partition_waits_for_ever_when_there_are_more_than_the_limit() -> None:
    start: Positions = {"orders": dict.fromkeys(range(1, 11), 0)}
    turn = 0
    for _ in range(4):
        end = {"orders": dict.fromkeys(range(1, 11), 1000000)}
        start, turn = admitted(start, end, 3, turn)
    assert min(start["orders"].values()) == 1


def test_a_small_partition_is_not_starved_by_a_big_one() -> None:
    taken, _ = admitted({}, {"orders": {1: 1_000_000, 2: 5}}, 100, 0)
    assert taken == {"orders": {1: 95, 2: 5}}


def test_steps_lead_to_the_end() -> None:
    start: Positions = {}
    end = {"a": {1: 7, 2: 100}, "b": {3: 1}}
    steps = [start]
    turn = 0
    while start != end:
        start, turn = admitted(start, end, 10, turn)
        steps.append(start)
    assert len(steps) == 12
    assert all(_distance(one, other) <= 10 for one, other in pairwise(steps))


def test_partitions_that_are_gone_leave_the_offset() -> None:
    lanes = {"orders": [Lane(2, "b", 1, 5)]}
    start = {"orders": {1: 9, 2: 3}, "other": {7: 7}}
    left = {"orders": {2: 3}, "other": {7: 7}}
    assert without_gone(start, lanes) == left
    assert reachable(left, lanes) == {"orders": {2: 5}, "other": {7: 7}}
    assert reachable({}, lanes, {"orders": {2: 4}}) == {"orders": {2: 4}}
    assert reachable({"orders": {2: 5}}, lanes, {"orders": {2: 4}}) == {"orders": {2: 5}}


# --- what is lost ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lanes", "left"),
    [
        ([Lane(1, "p", 5, 20)], [SeqRange("orders", 1, "p", 5, 10)]),
        ([Lane(1, "p", 21, 20)], []),
        ([], []),
    ],
)
def test_what_is_gone_is_missed(lanes: list[Lane], left: list[SeqRange]) -> None:
    start, end = {"orders": {1: 2}}, {"orders": {1: 10}}
    with pytest.raises(DataLossError, match="seq 3 to 10 were wanted"):
        ranges_between(start, end, {"orders": lanes}, fail_on_data_loss=True)
    assert ranges_between(start, end, {"orders": lanes}, fail_on_data_loss=False) == left


def test_what_was_read_may_go() -> None:
    lanes = {"orders": [Lane(1, "p", 11, 20)]}
    ranges = ranges_between(
        {"orders": {1: 10, 7: 3}}, {"orders": {1: 12, 7: 3}}, lanes, fail_on_data_loss=True
    )
    assert ranges == [SeqRange("orders", 1, "p", 11, 12)]
