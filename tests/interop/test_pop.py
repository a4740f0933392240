"""Pops by the published client."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.interop.clients import NEWEST
from tests.interop.conftest import SWALLOWED, NewQueen
from tests.interop.verbs import await_pop, data, moment, of_version, pop, push


async def test_a_queue_that_does_not_exist_is_an_empty_queue(queen: Any, name: str) -> None:
    assert await pop(queen, name) == []


async def test_batch_bounds_what_a_pop_gets(queen: Any, name: str) -> None:
    await push(queen, name, 1, 2, 3)
    messages = await pop(queen, name, batch=2)
    assert data(messages) == [1, 2]
    assert len({message["leaseId"] for message in messages}) == 1


async def test_a_batch_without_measure_does_not_look_like_an_empty_queue(
    queen: Any, name: str
) -> None:
    await push(queen, name, 1, 2, 3)
    queue = queen.queue(name).group(name).batch(50_000).partitions(5_000).wait(False)
    assert data(await queue.pop()) == [1, 2, 3]


async def test_what_is_leased_is_not_given_out_again(queen: Any, name: str) -> None:
    await push(queen, name, 1, 2)
    [first] = await pop(queen, name, batch=1)
    assert await pop(queen, name) == []
    assert (await queen.ack(first))["success"]
    assert data(await pop(queen, name)) == [2]


async def test_a_waiting_pop_gets_what_is_pushed_later(new_queen: NewQueen, name: str) -> None:
    consumer, producer = new_queen(), new_queen()
    for n in range(5):
        waiting = asyncio.create_task(await_pop(consumer, name))
        await pop(producer, f"{name}-other")  # a round trip, so that it waits by now
        assert not waiting.done()
        await push(producer, name, n)
        [message] = await waiting
        assert message["data"] == n
        assert (await consumer.ack(message))["success"]


async def test_each_of_many_waiting_pops_gets_one_message(new_queen: NewQueen, name: str) -> None:
    queen = new_queen()
    waiting = [asyncio.create_task(await_pop(queen, name, batch=1)) for _ in range(20)]
    producer = new_queen()
    for n in range(20):
        await push(producer, name, n, partition=f"p{n}")
    popped = await asyncio.gather(*waiting)
    assert sorted(data([message for messages in popped for message in messages])) == list(range(20))


async def test_a_waiting_pop_ends_empty_when_its_time_is_over(queen: Any, name: str) -> None:
    started = time.monotonic()
    assert await queen.queue(name).wait(True).timeout_millis(300).batch(1).pop() == []
    assert 0.29 <= time.monotonic() - started < 5


async def test_a_waiting_pop_of_a_named_partition_hears_of_that_one_alone(
    queen: Any, name: str
) -> None:
    queue = queen.queue(name).partition("wanted").wait(True).timeout_millis(15_000).batch(5)
    waiting = asyncio.create_task(queue.pop())
    await push(queen, name, "not this", partition="other")
    await push(queen, name, "this", partition="wanted")
    assert data(await waiting) == ["this"]


async def test_one_pop_takes_several_partitions_under_one_lease(queen: Any, name: str) -> None:
    for n in range(5):
        await push(queen, name, n, partition=f"p{n}")
    messages = await queen.queue(name).wait(False).batch(100).partitions(4).pop()
    assert data(messages) == [0, 1, 2, 3]
    assert [message["partition"] for message in messages] == ["p0", "p1", "p2", "p3"]
    assert len({message["partitionId"] for message in messages}) == 4
    assert len({message["leaseId"] for message in messages}) == 1
    assert (await queen.ack(messages))["success"]
    assert data(await pop(queen, name)) == [4]


async def test_a_pop_by_namespace_and_task_finds_their_queues(queen: Any, name: str) -> None:
    labels = [("n1", "t1"), ("n1", "t2"), ("n2", "t1")]
    for namespace, task in labels:
        queue = queen.queue(f"{name}-{namespace}-{task}")
        await queue.namespace(name + namespace).task(name + task).create()
        await push(queen, f"{name}-{namespace}-{task}", f"{namespace} {task}")
    both = queen.queue().namespace(f"{name}n1").task(f"{name}t2").wait(False).batch(10)
    [message] = await both.pop()
    assert (message["data"], message["queue"]) == ("n1 t2", f"{name}-n1-t2")
    by_task = queen.queue().task(f"{name}t1").wait(False).batch(10).partitions(10)
    assert sorted(data(await by_task.pop())) == ["n1 t1", "n2 t1"]
    by_namespace = queen.queue().namespace(f"{name}n1").wait(False).batch(10).group("other")
    assert len(await by_namespace.partitions(10).pop()) == 2


async def test_what_the_server_refuses_is_told_and_not_taken_for_an_empty_queue(
    queen: Any, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = queen.queue(name).group(name).subscription_from("yesterday")
    assert await queue.wait(False).pop() == []
    assert "subscriptionFrom" in SWALLOWED.search(capsys.readouterr().out).group()


async def test_a_message_is_not_delivered_before_its_delay_is_over(queen: Any, name: str) -> None:
    await queen.queue(name).config({"delayed_processing": 0.2}).create()
    await push(queen, name, "late")
    [message] = await await_pop(queen, name)
    assert message["data"] == "late"
    assert datetime.now(UTC) - moment(message["createdAt"]) >= timedelta(seconds=0.2)


@of_version(NEWEST)
async def test_commit_on_delivery_needs_no_ack(queen: Any, name: str) -> None:
    await push(queen, name, 1, 2, 3)
    queue = queen.queue(name).group(name).wait(False)
    messages = await queue.batch(2).commit_on_delivery().pop()
    assert data(messages) == [1, 2]
    assert not any(message["leaseId"] for message in messages)
    assert data(await pop(queen, name, group=name)) == [3]


@of_version(NEWEST)
async def test_a_pop_that_leaves_its_size_to_the_server_gets_many(queen: Any, name: str) -> None:
    await push(queen, name, *range(50))
    result = await queen.queue(name).wait(False).pop_result()
    assert data(result.messages) == list(range(50))
    assert result.autopilot.batch >= 50
    assert result.autopilot.partitions >= 1


@of_version(NEWEST)
async def test_a_pop_that_names_its_size_is_given_that(queen: Any, name: str) -> None:
    for n in range(3):
        await push(queen, name, n, n, partition=f"p{n}")
    pinned = await queen.queue(name).wait(False).partitions(1).pop_result()
    assert data(pinned.messages) == [0, 0]
    assert pinned.autopilot.partitions == 1
    assert data(await queen.queue(name).wait(False).batch(1).pop()) == [1]


@of_version(NEWEST)
async def test_a_delivery_policy_that_is_not_ours_is_refused_before_anything_is_leased(
    queen: Any, name: str
) -> None:
    await push(queen, name, 1, 2)
    with pytest.raises(Exception, match="conflation"):
        await queen.queue(name).group(name).conflation().wait(False).pop()
    assert data(await pop(queen, name, group=name)) == [1, 2]
