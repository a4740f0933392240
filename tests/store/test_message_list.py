"""Popped messages are a sequence like any other, made when looked at; and walking them tells the
same."""

import pytest

from monarq.model import Ack, AckStatus, Message, PushItem
from monarq.store import Store
from monarq.store.message_list import MessageList, MessageRun, walk
from tests.store.calls import ack_all, next_items, pop, push, push_items, push_many, unwrap
from tests.store.scenarios import WORK

pytestmark = pytest.mark.smoke


def a_list() -> tuple[MessageList, list[Message]]:
    runs = [
        MessageRun("q", "p", 7, 4, 2, 9, b"1[2]", b"\0\0\0\0\1\0\0\0\4\0\0\0"),
        MessageRun("q", "p", 7, 6, 1, 9, b"{}", b"", ["mine"], [None], ["me"], [b"{}"]),
    ]
    expected = [
        Message("q", "p", 7, 4, "7-4", b"1", 9, 1),
        Message("q", "p", 7, 5, "7-5", b"[2]", 9, 1),
        Message("q", "p", 7, 6, "mine", b"{}", 9, 1, producer="me", headers=b"{}"),
    ]
    return MessageList(runs), expected


def test_a_message_list_reads_like_a_list() -> None:
    messages, expected = a_list()
    assert len(messages) == 3
    assert messages == expected
    assert expected == messages
    assert messages != expected[:2]
    assert messages[-1] == expected[-1]
    assert messages[1:] == expected[1:]
    assert list(reversed(messages)) == expected[::-1]
    assert expected[1] in messages
    assert repr(messages) == repr(expected)
    assert not MessageList([])
    with pytest.raises(IndexError):
        messages[3]


def test_walking_tells_what_the_messages_say() -> None:
    messages, expected = a_list()
    told = [(one.seq, one.transaction_id, one.payload) for one in expected]
    assert list(walk(messages)) == told
    assert list(walk(expected)) == told
    assert [run.has_metadata for run in messages.runs] == [False, True]


async def test_what_is_popped_walks_like_it_reads(store: Store) -> None:
    await push_many(store, "q", 5)
    await push_items(store, PushItem("q", b"6", transaction_id="t", headers=b'{"a":1}'))
    await store.configure("w", kind=WORK)
    await push_many(store, "w", 3)
    for queue, batch in (("q", 2), ("w", 3), ("q", 10), ("q", 10)):
        popped = await pop(store, queue, batch)
        walked = list(walk(popped.messages))
        assert walked == [(m.seq, m.transaction_id, m.payload) for m in popped.messages]
        if queue == "q":
            # The second time they come as what was delivered before.
            await ack_all(store, popped, AckStatus.RELEASE)
            assert [seq for seq, _, _ in walked] == list(range(1, len(walked) + 1))
    assert popped.messages[5].headers == b'{"a":1}'
    assert walked[5] == (6, "t", b"6")


async def test_leases_over_several_partitions_and_over_items_are_acked_in_one_call(
    store: Store,
) -> None:
    """As many partitions as leases, and yet not one each."""
    await store.configure("w", kind=WORK)
    await push(store, "w")
    for partition in ("a", "b"):
        await push(store, "q", partition=partition)
    both = await pop(store, "q", 2, partitions=2)
    item = await pop(store, "w")
    answers = [
        unwrap([answer])
        for answer in await store.ack([Ack(lease_id=one.lease_id) for one in (both, item)])
    ]
    assert [answer.count for answer in answers] == [2, 1]
    assert not (await pop(store, "q", lease_seconds=1)).messages
    assert await next_items(store, "w") == []
