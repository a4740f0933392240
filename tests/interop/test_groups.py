"""Consumer groups as the published client lists, moves and deletes them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.interop.verbs import data, pop, push


async def _consumed(queen: Any, name: str, *payloads: Any) -> None:
    """A queue with these messages, all of them consumed by the group of the same name."""
    await push(queen, name, *payloads)
    assert (await queen.ack(await pop(queen, name, group=name), True, {"group": name}))["success"]


async def test_a_group_is_listed_with_its_lag(queen: Any, name: str) -> None:
    await _consumed(queen, name, 1, 2)
    await push(queen, name, 3)
    groups = (await queen.admin.list_consumer_groups())["consumerGroups"]
    [group] = [group for group in groups if group["name"] == name]
    assert (group["queueName"], group["lag"]) == (name, 1)
    detail = await queen.admin.get_consumer_group(name)
    assert detail["name"] == name
    assert [(queue["queueName"], queue["lag"]) for queue in detail["queues"]] == [(name, 1)]


async def test_a_group_that_never_popped_is_in_no_queue(queen: Any, name: str) -> None:
    assert (await queen.admin.get_consumer_group(name))["queues"] == []


async def test_groups_that_lag_are_found(queen: Any, name: str) -> None:
    await _consumed(queen, name, 1)
    await push(queen, name, 2)
    lagging = await queen.admin.get_lagging_consumers(min_lag_seconds=0)
    assert name in str(lagging)
    assert name not in str(await queen.admin.get_lagging_consumers(3600))


async def test_a_deleted_group_begins_anew(queen: Any, name: str) -> None:
    await _consumed(queen, name, 1, 2)
    assert (await queen.delete_consumer_group(name))["success"] is True
    assert data(await pop(queen, name, group=name)) == [1, 2]


async def test_a_group_that_keeps_its_beginning_begins_there_again(queen: Any, name: str) -> None:
    await push(queen, name, "old")
    queue = queen.queue(name).group(name).wait(False).batch(10)
    assert await queue.subscription_mode("new").pop() == []
    await push(queen, name, "new")
    assert (await queen.ack(await queue.pop(), True, {"group": name}))["success"]
    await queen.delete_consumer_group(name, delete_metadata=False)
    assert data(await pop(queen, name, group=name)) == ["new"]


async def test_a_group_is_deleted_from_one_queue_alone(queen: Any, name: str) -> None:
    queues = [f"{name}-1", f"{name}-2"]
    for queue in queues:
        await push(queen, queue, queue)
        assert (await queen.ack(await pop(queen, queue, group=name), True, {"group": name}))[
            "success"
        ]
    await queen.admin.delete_consumer_group_for_queue(name, queues[0])
    assert data(await pop(queen, queues[0], group=name)) == [queues[0]]
    assert await pop(queen, queues[1], group=name) == []


async def test_a_group_is_moved_to_the_end(queen: Any, name: str) -> None:
    await _consumed(queen, name, 1)
    await push(queen, name, 2, 3)
    await queen.admin.seek_consumer_group(name, name, {"toEnd": True})
    assert await pop(queen, name, group=name) == []
    await push(queen, name, 4)
    assert data(await pop(queen, name, group=name)) == [4]


async def test_a_group_is_moved_back_to_a_time_and_reads_again(queen: Any, name: str) -> None:
    await _consumed(queen, name, 1, 2)
    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    await queen.admin.seek_consumer_group(name, name, {"timestamp": hour_ago})
    assert data(await pop(queen, name, group=name)) == [1, 2]


async def test_a_seek_that_names_no_place_is_refused(queen: Any, name: str) -> None:
    await _consumed(queen, name, 1)
    for options in (None, {"timestamp": "yesterday"}, {"toEnd": False}):
        with pytest.raises(Exception, match=r"timestamp|toEnd"):
            await queen.admin.seek_consumer_group(name, name, options)
    assert await pop(queen, name, group=name) == []


async def test_a_groups_beginning_is_moved(queen: Any, name: str) -> None:
    await _consumed(queen, name, 1, 2)
    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    await queen.update_consumer_group_timestamp(name, hour_ago)
    assert data(await pop(queen, name, group=name)) == [1, 2]
