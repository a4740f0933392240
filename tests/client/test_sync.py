"""The synchronous client is the asynchronous one."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from monarq.client.client import Client
from monarq.client.sync_received import SyncBatch, SyncReceived
from monarq.errors import LeaseError, MonarqError, NotFoundError, StoreUnavailableError
from monarq.model import Ack, Acked, Push, PushItem
from tests.client.conftest import served


@pytest.fixture
def mq(tmp_path: Path) -> Iterator[Client]:
    with Client(f"sqlite:///{tmp_path}/mq.db") as client:
        yield client


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_push_pop_and_ack(mq: Client) -> None:
    queue = mq.queue("orders").partition("c-42")
    queue.push({"n": 1}, transaction_id="t")
    [message] = queue.pop()
    assert (message.payload, message.transaction_id, message.attempts) == ({"n": 1}, "t", 1)
    message.ack()
    assert not queue.pop()
    assert queue.stats().completed == 1


def test_push_pop_renew_and_ack_without_a_handle_on_the_queue(mq: Client) -> None:
    mq.push(Push([PushItem("orders", b"1", namespace="shop"), PushItem("orders", b"2")]))
    batch = mq.pop(2, namespace="shop")
    assert [message.payload for message in batch] == [1, 2]
    assert batch.lease_id is not None
    assert mq.renew(batch.lease_id, 900) > datetime.now(UTC)
    [done] = mq.ack([Ack(lease_id=batch.lease_id)])
    assert isinstance(done, Acked)
    assert done.count == 2
    assert [row.pending for row in mq.queue("orders").partitions().rows] == [0]


def test_a_transaction(mq: Client) -> None:
    mq.queue("a").push(1)
    [message] = mq.queue("a").pop()
    with mq.transaction() as tx:
        tx.ack(message)
        tx.push(mq.queue("b"), 2)
    assert len(tx.results) == 2
    assert [each.payload for each in mq.queue("b").pop()] == [2]


def test_a_consumer_runs_inside_its_block(mq: Client) -> None:
    queue = mq.queue("q")
    queue.push_many(range(10))
    seen: list[int] = []

    def handle(message: SyncReceived[int]) -> None:
        seen.append(message.payload)
        message.trace("handled")

    with queue.consumer(handle, batch=4) as consumer:
        until(lambda: consumer.handled == 10)
    assert seen == list(range(10))


def test_a_batch_handler(mq: Client) -> None:
    queue = mq.queue("q")
    queue.push_many(range(4))
    sizes: list[int] = []

    def handle(batch: SyncBatch[int]) -> None:
        sizes.append(len(batch))
        batch[0].bury("first")

    with queue.consumer(handle, each=False, batch=4) as consumer:
        until(lambda: consumer.handled == 4)
    assert sizes == [4]
    assert queue.stats().dead == 1


def test_a_buffer(mq: Client) -> None:
    with mq.queue("q").buffer(max_count=10) as buffer:
        for number in range(25):
            buffer.add(number)
    assert buffer.sent == 25
    assert [message.payload for message in mq.queue("q").pop(100)] == list(range(25))


def test_a_loop_over_a_queue(mq: Client) -> None:
    queue = mq.queue("q")
    queue.push_many("ab")
    messages = iter(queue)
    assert [next(messages).payload for _ in range(2)] == ["a", "b"]
    messages.close()  # type: ignore[attr-defined]
    assert queue.stats().completed == 1


def test_a_loop_takes_the_next_messages_along_with_its_last_ack(
    mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = mq.queue("q")
    queue.push_many(range(6))
    link = mq._client.link
    asked: list[str] = []

    def noted(name: str) -> None:
        real = getattr(link, name)

        async def call(*args: Any) -> Any:
            asked.append(name)
            return await real(*args)

        monkeypatch.setattr(link, name, call)

    for name in ("pop", "ack", "ack_and_pop"):
        noted(name)
    messages = queue.messages(batch=2)
    assert [next(messages).payload for _ in range(6)] == list(range(6))
    assert asked == ["pop", "ack", "ack_and_pop", "ack", "ack_and_pop", "ack"]
    messages.close()  # type: ignore[attr-defined]
    assert queue.stats().completed == 5


def test_a_loop_that_is_left_at_the_first_of_a_batch_gives_it_back(mq: Client) -> None:
    queue = mq.queue("q")
    queue.push_many(range(4))
    seen = []
    for message in queue.messages(batch=2):
        seen.append(message.payload)
        if message.payload == 2:
            break
    del message
    gc.collect()
    assert seen == [0, 1, 2]
    left = queue.pop(5, wait=5)
    assert [(message.payload, message.attempts) for message in left] == [(2, 1), (3, 1)]


def test_a_loop_is_told_of_an_answer_that_came_too_late(mq: Client) -> None:
    queue = mq.queue("q")
    queue.push_many(range(2))
    messages = queue.messages()
    first = next(messages)
    mq.ack([first.received.to_ack()])
    with pytest.raises(LeaseError):
        next(messages)
    [left] = queue.pop(wait=5)
    assert (left.payload, left.attempts) == (1, 1)


def test_threads_share_a_client(mq: Client) -> None:
    def push() -> None:
        for number in range(20):
            mq.queue("q").push(number)

    threads = [threading.Thread(target=push) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mq.queue("q").stats().pushed == 100


def test_everything_else_goes_by_the_contracts_names(mq: Client) -> None:
    mq.queue("q").push(1)
    assert [queue.name for queue in mq.admin.list_queues().rows] == ["q"]
    with pytest.raises(NotFoundError):
        mq.admin.get_queue("missing")
    with pytest.raises(AttributeError):
        mq.admin.no_such_call()


def test_a_closed_client_says_so(tmp_path: Path) -> None:
    mq = Client(f"sqlite:///{tmp_path}/mq.db")
    mq.close()
    mq.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        mq.queue("q").push(1)


def test_what_a_loop_was_left_with_is_given_back_when_the_client_is_closed(tmp_path: Path) -> None:
    with Client(f"sqlite:///{tmp_path}/mq.db") as mq:
        mq.queue("q").push_many(range(2))
        messages = mq.queue("q").messages()
        assert next(messages).payload == 0
    with Client(f"sqlite:///{tmp_path}/mq.db") as mq:
        [first] = mq.queue("q").pop(wait=5)
        assert (first.payload, first.attempts) == (0, 1)
    messages.close()  # type: ignore[attr-defined]


def close_under_calls(address: str) -> list[BaseException]:
    """What the calls of other threads that wait meanwhile raise."""
    mq = Client(address)
    raised: list[BaseException] = []
    begin = threading.Barrier(4)

    def pop_on() -> None:
        begin.wait()
        try:
            while True:
                mq.queue("q").pop(wait=30)
        except MonarqError as error:
            raised.append(error)

    threads = [threading.Thread(target=pop_on, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    begin.wait()
    mq.close()
    for thread in threads:
        thread.join(20)
    return raised


async def test_closing_ends_the_calls_of_other_threads_over_http(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        assert len(await asyncio.to_thread(close_under_calls, url)) == 3


def test_closing_ends_the_calls_of_other_threads_in_this_process(tmp_path: Path) -> None:
    assert len(close_under_calls(f"sqlite:///{tmp_path}/mq.db")) == 3


def test_a_store_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    (tmp_path / "no.db").write_text("this is not a database, and far too short to be one")
    with pytest.raises(Exception, match=r"."):
        Client(f"sqlite:///{tmp_path}/no.db")
    until(lambda: threading.active_count() <= before)
