"""Packing, reading and cutting segments: every payload comes back, from any slice."""

import random
from array import array

import pytest

from monarq.store.segments import MAX_BYTES, MAX_MESSAGES, cuts, pack, unpack


def random_payloads(seed: int, count: int) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(chance.choice([0, 1, 2, 17, 300])) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_what_was_packed_unpacks_to_the_same_payloads(seed: int) -> None:
    payloads = random_payloads(seed, 100)
    data, offsets = pack(payloads)
    assert unpack(data, offsets) == payloads
    assert len(offsets) == 101
    assert offsets[0] == 0
    assert offsets[-1] == len(data) == sum(map(len, payloads))


def test_nothing_packs_to_one_offset() -> None:
    assert pack([]) == (b"", array("i", [0]))
    assert unpack(b"", [0]) == []


def test_offsets_are_the_32_bit_integers_of_an_arrow_binary_array() -> None:
    pa = pytest.importorskip("pyarrow")
    payloads = random_payloads(1, 50)
    data, offsets = pack(payloads)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)]
    assert pa.Array.from_buffers(pa.binary(), 50, buffers).to_pylist() == payloads


def test_any_slice_of_a_segment_reads_as_that_slice_of_its_payloads() -> None:
    payloads = random_payloads(2, 12)
    data, offsets = pack(payloads)
    for first in range(12):
        for end in range(first, 13):
            part = data[offsets[first] : offsets[end]]
            assert unpack(part, offsets[first : end + 1]) == payloads[first:end]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([0], [(0, 1)]),
        ([MAX_BYTES], [(0, 1)]),
        ([MAX_BYTES + 1], [(0, 1)]),
        ([MAX_BYTES, 1], [(0, 1), (1, 2)]),
        ([1, MAX_BYTES], [(0, 1), (1, 2)]),
        ([MAX_BYTES * 3, MAX_BYTES * 3], [(0, 1), (1, 2)]),
        ([MAX_BYTES // 2] * 4, [(0, 2), (2, 4)]),
        ([1] * MAX_MESSAGES, [(0, MAX_MESSAGES)]),
        ([1] * (MAX_MESSAGES + 1), [(0, MAX_MESSAGES), (MAX_MESSAGES, MAX_MESSAGES + 1)]),
    ],
)
def test_a_batch_is_cut_at_the_bound_and_not_before(
    sizes: list[int], expected: list[tuple[int, int]]
) -> None:
    assert list(cuts(sizes)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_cuts_cover_all_in_order_within_bounds_and_no_more_often_than_needed(seed: int) -> None:
    chance = random.Random(seed)
    scale = chance.choice([10, 1_000, 100_000, MAX_BYTES])
    sizes = [chance.randrange(scale) for _ in range(chance.randrange(1, 3_000))]
    parts = list(cuts(sizes))
    assert [i for start, end in parts for i in range(start, end)] == list(range(len(sizes)))
    for start, end in parts:
        assert 1 <= end - start <= MAX_MESSAGES
        assert end - start == 1 or sum(sizes[start:end]) <= MAX_BYTES
        if end < len(sizes):
            assert end - start == MAX_MESSAGES or sum(sizes[start : end + 1]) > MAX_BYTES
