"""An answer to a pop is bounded in bytes too; what has no room stays for the next one."""

from __future__ import annotations

import pytest

from monarq.errors import InvalidRequestError
from monarq.model import MAX_PAYLOAD_BYTES, Ack, AckStatus, Pop, Popped, PushItem, QueueKind
from monarq.store import Store
from tests.store.calls import ack_of, push_items, unwrap

pytestmark = pytest.mark.smoke

SIZE = 100


def payload(size: int = SIZE) -> bytes:
    return b'"' + b"x" * (size - 2) + b'"'


async def pop(store: Store, max_bytes: int, queue: str = "q", **fields: object) -> Popped:
    fields = {"batch": 100, **fields}
    return unwrap(await store.pop([Pop(queue=queue, **fields)], max_bytes=max_bytes))  # type: ignore[arg-type]


def seqs(popped: Popped) -> list[int]:
    return [message.seq for message in popped.messages]


async def ack(store: Store, popped: Popped, status: AckStatus = AckStatus.COMPLETED) -> int:
    return unwrap(await store.ack([Ack(lease_id=popped.lease_id, status=status)])).count


async def fill(store: Store, count: int, partition: str = "Default") -> None:
    """Some in one segment, some in segments of their own."""
    items = [PushItem("q", payload(), partition) for _ in range(count)]
    await push_items(store, *items[: count // 2])
    for item in items[count // 2 :]:
        await push_items(store, item)


@pytest.mark.parametrize(
    ("max_bytes", "expected"),
    [(1, 1), (SIZE - 1, 1), (SIZE, 1), (2 * SIZE - 1, 1), (2 * SIZE, 2), (799, 7), (10**6, 10)],
)
async def test_a_pop_ends_before_the_message_that_would_pass_the_bound(
    store: Store, max_bytes: int, expected: int
) -> None:
    await fill(store, 10)
    popped = await pop(store, max_bytes)
    assert seqs(popped) == list(range(1, expected + 1))
    assert [message.payload for message in popped.messages] == [payload()] * expected


async def test_a_lease_covers_only_what_had_room_in_the_answer(store: Store) -> None:
    await fill(store, 10)
    seen: list[int] = []
    while (popped := await pop(store, 3 * SIZE)).messages:
        seen += seqs(popped)
        assert await ack(store, popped) == len(popped.messages)
    assert seen == list(range(1, 11))


async def test_a_message_larger_than_the_bound_is_delivered_alone(store: Store) -> None:
    sizes = [10, 5000, 10, 10, 5000]
    await push_items(store, *(PushItem("q", payload(size)) for size in sizes))
    got = []
    while (popped := await pop(store, 1000)).messages:
        got.append([len(message.payload) for message in popped.messages])
        await ack(store, popped)
    assert got == [[10], [5000], [10, 10], [5000]]


async def test_the_bound_is_for_all_partitions_of_an_answer(store: Store) -> None:
    for partition in ("a", "b", "c"):
        await fill(store, 4, partition)
    popped = await pop(store, 6 * SIZE, partitions=3)
    assert [(m.partition, m.seq) for m in popped.messages] == [
        *(("a", seq) for seq in (1, 2, 3, 4)),
        *(("b", seq) for seq in (1, 2)),
    ]
    others = await pop(store, 10**6, partitions=3)
    assert {message.partition for message in others.messages} == {"c"}


async def test_a_partition_whose_first_message_has_no_room_is_left_as_it_was(store: Store) -> None:
    await push_items(store, PushItem("q", payload(), "a"), PushItem("q", payload(500), "b"))
    first = await pop(store, 2 * SIZE, partitions=2)
    assert [message.partition for message in first.messages] == ["a"]
    second = await pop(store, 2 * SIZE, partitions=2)
    assert [message.partition for message in second.messages] == ["b"]


async def test_auto_acked_messages_that_had_no_room_are_still_to_come(store: Store) -> None:
    await fill(store, 10)
    taken = [seqs(await pop(store, 4 * SIZE, auto_ack=True)) for _ in range(3)]
    assert taken == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]


async def test_an_answer_that_was_cut_says_that_there_is_more(store: Store) -> None:
    await fill(store, 10)
    assert (await pop(store, 4 * SIZE, auto_ack=True)).next_at is not None
    assert (await pop(store, 6 * SIZE, auto_ack=True)).next_at is None


async def test_the_bound_counts_only_what_is_delivered_again(store: Store) -> None:
    await fill(store, 6)
    popped = await pop(store, 10**6)
    answered = [2, 4]
    acks = [
        ack_of(message, popped.lease_id) for message in popped.messages if message.seq in answered
    ]
    for one in await store.ack(acks):
        unwrap([one])
    await ack(store, popped, AckStatus.RELEASE)
    again = await pop(store, 3 * SIZE)
    assert seqs(again) == [1, 3, 5]
    await ack(store, again)
    assert seqs(await pop(store, 3 * SIZE)) == [6]


async def test_several_pops_of_one_call_have_the_bound_each(store: Store) -> None:
    for partition in ("a", "b"):
        await fill(store, 4, partition)
    pops = [Pop(queue="q", batch=100)] * 2
    first, second = await store.pop(pops, max_bytes=3 * SIZE)
    assert [len(unwrap([one]).messages) for one in (first, second)] == [3, 3]


async def test_a_pop_of_items_ends_before_the_one_that_would_pass_the_bound(store: Store) -> None:
    await store.configure("w", kind=QueueKind.WORK)
    await push_items(store, *(PushItem("w", payload()) for _ in range(10)))
    popped = await pop(store, 4 * SIZE - 1, "w")
    assert seqs(popped) == [1, 2, 3]
    rest = await pop(store, 10**6, "w")
    assert seqs(rest) == [4, 5, 6, 7, 8, 9, 10]


async def test_who_has_no_room_for_the_next_item_is_dealt_no_more(store: Store) -> None:
    await store.configure("w", kind=QueueKind.WORK)
    sizes = [90, 10, 60, 20, 10, 10, 10]
    await push_items(store, *(PushItem("w", payload(size)) for size in sizes))
    pops = [Pop(queue="w", batch=10), Pop(queue="w", batch=2), Pop(queue="w", batch=10)]
    hands = [seqs(unwrap([one])) for one in await store.pop(pops, max_bytes=SIZE)]
    # The first has no room for the fourth; the second takes it, and wants no more.
    assert hands == [[1], [2, 4], [3, 5, 6, 7]]


async def test_a_dealt_item_goes_to_the_next_who_has_room(store: Store) -> None:
    await store.configure("w", kind=QueueKind.WORK)
    sizes = [90, 10, 20, 20, 10]
    await push_items(store, *(PushItem("w", payload(size)) for size in sizes))
    pops = [Pop(queue="w", batch=10), Pop(queue="w", batch=10)]
    hands = [seqs(unwrap([one])) for one in await store.pop(pops, max_bytes=SIZE)]
    assert hands == [[1], [2, 3, 4, 5]]


@pytest.mark.parametrize("max_bytes", [0, -1, 2**41, True, 1.5])
async def test_a_bound_that_is_none_is_refused(store: Store, max_bytes: object) -> None:
    with pytest.raises(InvalidRequestError, match="max_bytes"):
        await store.pop([Pop(queue="q")], max_bytes=max_bytes)  # type: ignore[arg-type]


async def test_by_default_a_thousand_large_messages_are_several_answers(store: Store) -> None:
    size = MAX_PAYLOAD_BYTES // 4
    for _ in range(6):
        await push_items(store, PushItem("q", payload(size)))
    popped = unwrap(await store.pop([Pop(queue="q", batch=1000)]))
    assert seqs(popped) == [1, 2, 3, 4]
