"""The published client's consumers: loops that pop, call a handler and ack."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.interop.clients import NEWEST, OLD
from tests.interop.conftest import NewQueen
from tests.interop.verbs import Seen, await_pop, data, of_version, pending, pop, push, started


async def test_a_consumer_is_given_messages_one_by_one_and_acks_them(queen: Any, name: str) -> None:
    await push(queen, name, 1, 2, 3)
    given: list[Any] = []

    async def handle(message: dict[str, Any]) -> None:
        given.append(message["data"])

    await queen.queue(name).batch(1).limit(3).consume(handle)
    assert given == [1, 2, 3]
    assert await pending(queen, name) == 0


async def test_a_consumer_waits_for_what_is_pushed_later(new_queen: NewQueen, name: str) -> None:
    seen = Seen()
    consuming = started(new_queen().queue(name).batch(1).limit(3).consume(seen))
    producer = new_queen()
    for n in range(3):
        await push(producer, name, n)
    await asyncio.wait_for(consuming, 15)
    assert seen == [0, 1, 2]


async def test_a_batch_is_handed_over_as_a_list(queen: Any, name: str) -> None:
    await push(queen, name, *range(10))
    sizes: list[int] = []

    async def handle(messages: list[Any]) -> None:
        sizes.append(len(messages))

    await queen.queue(name).batch(5).limit(10).consume(handle)
    assert sizes == [5, 5]
    assert await pop(queen, name) == []


async def test_each_hands_the_messages_of_a_batch_over_one_by_one(queen: Any, name: str) -> None:
    await push(queen, name, *range(10))
    seen: list[Any] = []

    async def handle(message: dict[str, Any]) -> None:
        seen.append(message["data"])

    await queen.queue(name).batch(10).each().limit(10).consume(handle)
    assert seen == list(range(10))
    assert await pop(queen, name) == []


async def test_every_group_gets_every_message(queen: Any, name: str) -> None:
    await push(queen, name, *range(20))
    seen = {group: Seen() for group in (f"{name}-1", f"{name}-2")}
    for group, handler in seen.items():
        await queen.queue(name).group(group).batch(7).limit(20).consume(handler)
    assert [list(handler) for handler in seen.values()] == [list(range(20))] * 2


async def test_consumers_of_one_group_share_and_keep_the_order_of_each_partition(
    new_queen: NewQueen, name: str
) -> None:
    producer = new_queen()
    for partition in range(8):
        await push(producer, name, *[(partition, n) for n in range(25)], partition=str(partition))
    seen: list[tuple[int, int]] = []
    done = asyncio.Event()

    async def handle(messages: list[Any]) -> None:
        seen.extend((message["data"][0], message["data"][1]) for message in messages)
        if len(seen) >= 200:
            done.set()

    consumers = [
        started(queue.batch(5).concurrency(2).timeout_millis(200).consume(handle, signal=done))
        for queue in (new_queen().queue(name).group(name) for _ in range(2))
    ]
    await asyncio.wait_for(asyncio.gather(*consumers), 20)
    assert Counter(seen) == Counter((p, n) for p in range(8) for n in range(25))
    for partition in range(8):
        assert [n for p, n in seen if p == partition] == list(range(25))


async def test_a_consumer_ends_when_it_was_idle_long_enough(queen: Any, name: str) -> None:
    await push(queen, name, "last")
    seen = Seen()
    await queen.queue(name).batch(1).idle_millis(300).timeout_millis(100).consume(seen)
    assert seen == ["last"]


async def test_a_consumer_that_polls_gets_messages_too(queen: Any, name: str) -> None:
    seen = Seen()
    consuming = started(queen.queue(name).batch(1).wait(False).limit(1).consume(seen))
    await push(queen, name, "found")
    await asyncio.wait_for(consuming, 15)
    assert seen == ["found"]


async def test_what_a_handler_fails_on_is_delivered_again(queen: Any, name: str) -> None:
    await queen.queue(name).config({"retry_limit": 5, "retry_delay": 0}).create()
    await push(queen, name, "tried", "next")
    attempts: list[tuple[str, int]] = []

    async def handle(message: dict[str, Any]) -> None:
        attempts.append((message["data"], message["attempts"]))
        if message["data"] == "tried" and message["attempts"] < 3:
            raise RuntimeError("not yet")

    await queen.queue(name).batch(1).limit(4).consume(handle)
    assert attempts == [("tried", 1), ("tried", 2), ("tried", 3), ("next", 1)]
    assert await pop(queen, name) == []


async def test_what_a_handler_always_fails_on_becomes_a_dead_letter(queen: Any, name: str) -> None:
    await queen.queue(name).config({"retry_limit": 2, "retry_delay": 0}).create()
    await push(queen, name, "poison", "good")
    seen: list[str] = []

    async def handle(message: dict[str, Any]) -> None:
        seen.append(message["data"])
        if message["data"] == "poison":
            raise RuntimeError("cannot be handled")

    await queen.queue(name).group(name).batch(1).limit(4).consume(handle)
    assert seen == ["poison"] * 3 + ["good"]
    dead = await queen.queue(name).dlq(name).get()
    assert (dead["total"], data(dead["messages"])) == (1, ["poison"])


async def test_a_batch_that_fails_is_delivered_again_whole(queen: Any, name: str) -> None:
    await queen.queue(name).config({"retry_delay": 0}).create()
    await push(queen, name, 1, 2, 3)
    batches: list[list[int]] = []

    async def handle(messages: list[Any]) -> None:
        batches.append(data(messages))
        if len(batches) == 1:
            raise RuntimeError("once")

    await queen.queue(name).batch(10).limit(6).consume(handle)
    assert batches == [[1, 2, 3]] * 2


async def test_with_callbacks_the_acks_are_the_users(queen: Any, name: str) -> None:
    await queen.queue(name).config({"retry_limit": 0, "retry_delay": 0}).create()
    await push(queen, name, "good", "bad")

    async def handle(message: dict[str, Any]) -> str:
        if message["data"] == "bad":
            raise ValueError("bad indeed")
        return "handled"

    async def succeeded(message: dict[str, Any], result: str) -> None:
        assert result == "handled"
        assert (await queen.ack(message, True))["success"]

    async def failed(message: dict[str, Any], error: Exception) -> None:
        assert (await queen.ack(message, False, {"error": str(error)}))["success"]

    consuming = queen.queue(name).batch(1).limit(2).consume(handle)
    await consuming.on_success(succeeded).on_error(failed)
    [dead] = (await queen.queue(name).dlq().get())["messages"]
    assert (dead["data"], dead["errorMessage"]) == ("bad", "bad indeed")


async def test_without_auto_ack_nothing_is_acked(queen: Any, name: str) -> None:
    await push(queen, name, 1)
    seen: list[Any] = []

    async def handle(message: dict[str, Any]) -> None:
        seen.append(message)

    await queen.queue(name).batch(1).auto_ack(False).limit(1).consume(handle)
    assert (await queen.ack(seen[0]))["success"]


@of_version(NEWEST)
async def test_a_batch_of_no_named_size_is_handed_over_as_a_list(queen: Any, name: str) -> None:
    await push(queen, name, *range(30))
    seen: list[Any] = []

    async def handle(messages: list[Any]) -> None:
        seen.extend(data(messages))

    await queen.queue(name).limit(30).consume(handle)
    assert seen == list(range(30))
    assert await pop(queen, name) == []


@of_version(NEWEST)
async def test_the_newest_client_says_why_a_message_failed(queen: Any, name: str) -> None:
    await queen.queue(name).config({"retry_limit": 0}).create()
    await push(queen, name, "poison")

    async def handle(message: dict[str, Any]) -> None:
        raise RuntimeError("this is why")

    await queen.queue(name).batch(1).limit(1).consume(handle)
    [dead] = (await queen.queue(name).dlq().get())["messages"]
    assert dead["errorMessage"] == "this is why"


@of_version(OLD)
async def test_the_old_client_goes_on_behind_a_failed_message(queen: Any, name: str) -> None:
    await queen.queue(name).config({"retry_limit": 5, "retry_delay": 0}).create()
    await push(queen, name, 1, 2, 3)
    seen: list[tuple[int, int]] = []

    async def handle(message: dict[str, Any]) -> None:
        seen.append((message["data"], message["attempts"]))
        if seen == [(1, 1)]:
            raise RuntimeError("once")

    await queen.queue(name).batch(10).each().limit(4).consume(handle)
    assert seen == [(1, 1), (2, 1), (3, 1), (1, 2)]
    assert await pop(queen, name) == []


@of_version(NEWEST)
async def test_what_the_newest_client_leaves_behind_a_failed_message_is_delivered_again(
    queen: Any, name: str
) -> None:
    await queen.queue(name).config({"lease_time": 1, "retry_delay": 0}).create()
    await push(queen, name, 1, 2, 3)
    seen: list[int] = []

    async def handle(message: dict[str, Any]) -> None:
        seen.append(message["data"])
        if seen == [1]:
            raise RuntimeError("once")

    await queen.queue(name).batch(10).each().limit(4).consume(handle)
    assert seen == [1, 1, 2, 3]
    assert await pop(queen, name) == []


@of_version(NEWEST)
async def test_supervision_that_the_server_does_not_have_does_not_stop_a_consumer(
    queen: Any, name: str
) -> None:
    await push(queen, name, 1)
    seen = Seen()
    await queen.queue(name).batch(1).limit(1).supervision({"group": "tests"}).consume(seen)
    assert seen == [1]


@pytest.mark.parametrize("mode", ["new", "new-only"])
async def test_a_new_group_may_skip_what_is_there(queen: Any, name: str, mode: str) -> None:
    await push(queen, name, "old")
    queue = queen.queue(name).group(name).subscription_mode(mode).wait(False).batch(10)
    assert await queue.pop() == []
    await push(queen, name, "new")
    assert data(await queue.pop()) == ["new"]


async def test_a_new_group_begins_at_the_beginning_if_it_says_nothing_or_all(
    queen: Any, name: str
) -> None:
    await push(queen, name, "old")
    assert data(await pop(queen, name, group=f"{name}-1")) == ["old"]
    queue = queen.queue(name).group(f"{name}-2").subscription_mode("all").wait(False).batch(10)
    assert data(await queue.pop()) == ["old"]


async def test_a_new_group_may_begin_now_or_at_a_time(queen: Any, name: str) -> None:
    await push(queen, name, "first")
    now = queen.queue(name).group(f"{name}-now").subscription_from("now").wait(False).batch(10)
    assert await now.pop() == []
    await push(queen, name, "second")
    assert data(await now.pop()) == ["second"]
    first, second = await pop(queen, name, group=f"{name}-all")
    assert first["createdAt"] < second["createdAt"]
    queue = queen.queue(name).group(f"{name}-at").subscription_from(second["createdAt"])
    assert data(await queue.wait(False).batch(10).pop()) == ["second"]


async def test_a_waiting_group_that_wants_what_is_new_is_woken_by_it(
    new_queen: NewQueen, name: str
) -> None:
    consumer, producer = new_queen(), new_queen()
    await push(producer, name, "old")
    seen = Seen()
    queue = consumer.queue(name).group(name).subscription_mode("new").batch(1)
    assert await queue.wait(False).pop() == []
    consuming = started(queue.wait(True).limit(1).consume(seen))
    await push(producer, name, "new")
    await asyncio.wait_for(consuming, 15)
    assert seen == ["new"]
    assert data(await await_pop(producer, name, group=f"{name}-2")) == ["old", "new"]
