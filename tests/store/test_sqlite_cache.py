"""What a SQLite store keeps in memory of its segments is never anything but what the file has."""

from pathlib import Path

import pytest

from monarq.clock import SystemClock
from monarq.errors import MonarqError
from monarq.model import Ack, Push, PushItem, StartFrom, Transaction
from monarq.store.sqlite import SqliteStore
from tests.store.calls import ack_all, pop, push_items, unwrap

LARGE = 20_000
"""Bytes; of segments that are kept when they are pushed."""


def payload(letter: str) -> bytes:
    return f'"{letter * LARGE}"'.encode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def open_file(path: Path) -> SqliteStore:
    return await SqliteStore.open(str(path), clock=SystemClock(), cipher=None)


async def test_what_another_process_deleted_is_not_delivered_from_memory(path: Path) -> None:
    async with await open_file(path) as store, await open_file(path) as other:
        pushed = await push_items(
            store, *(PushItem("q", payload(letter), "p", letter) for letter in "abc")
        )
        await other.delete_message(pushed[1].partition_id, "b")
        popped = await pop(store, "q", batch=10, group="late", start=StartFrom.ALL)
        assert [message.payload for message in popped.messages] == [payload("a"), payload("c")]


async def test_what_was_taken_back_is_not_delivered_in_place_of_what_came_then(path: Path) -> None:
    async with await open_file(path) as store:
        undone = Transaction(
            [Push([PushItem("q", payload("x"))]), Ack(lease_id="1-0123456789abcdef")]
        )
        with pytest.raises(MonarqError):
            unwrap(await store.transaction([undone]))
        await push_items(store, PushItem("q", payload("a")))
        popped = await pop(store, "q", batch=10)
        assert [message.payload for message in popped.messages] == [payload("a")]


async def test_what_was_just_pushed_comes_with_all_that_it_was_pushed_with(path: Path) -> None:
    items = [
        PushItem("q", payload(letter), "p", f"id-{letter}", headers=b'{"h":1}', trace_id="t")
        for letter in "abc"
    ]
    async with await open_file(path) as store:
        await push_items(store, *items)
        fresh = await pop(store, "q", batch=10)
        await ack_all(store, fresh)
        later = await pop(store, "q", batch=10, group="later", start=StartFrom.ALL)
    async with await open_file(path) as again:
        read = await pop(again, "q", batch=10, group="again", start=StartFrom.ALL)
    assert list(fresh.messages) == list(later.messages) == list(read.messages)
    assert [message.transaction_id for message in fresh.messages] == ["id-a", "id-b", "id-c"]
