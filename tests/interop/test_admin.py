"""The published client's administrative calls: each is made, and its answer looked at."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest

from tests.interop.clients import NEWEST, OLD
from tests.interop.verbs import data, of_version, pending, pop, push

#: Calls that the newest client refuses by itself.
NOT_IMPLEMENTED = {"clear_queue", "move_message_to_dlq"}

#: Calls about one message, one group or the whole server, tried in tests of their own.
TRIED_ELSEWHERE = {
    "clear_queue",
    "delete_consumer_group_for_queue",
    "delete_message",
    "get_consumer_group",
    "get_lagging_consumers",
    "get_message",
    "get_traces_by_name",
    "get_traces_for_message",
    "move_message_to_dlq",
    "retry_message",
    "seek_consumer_group",
    "set_maintenance_mode",
    "set_pop_maintenance_mode",
}

#: How each of the others is called for a queue, and what its answer must hold.
READS: dict[str, tuple[Callable[[Any, str], Any], set[str]]] = {
    "get_overview": (lambda admin, name: admin.get_overview(), {"queues", "messages"}),
    "get_namespaces": (lambda admin, name: admin.get_namespaces(), {"namespaces"}),
    "get_tasks": (lambda admin, name: admin.get_tasks(), {"tasks"}),
    "list_queues": (lambda admin, name: admin.list_queues(limit=1000), {"queues"}),
    "get_queue": (lambda admin, name: admin.get_queue(name), {"name", "options"}),
    "get_queue_depth": (
        lambda admin, name: admin.get_queue_depth(name),
        {"queue", "pending", "partitions"},
    ),
    "get_partitions": (
        lambda admin, name: admin.get_partitions(queue=name, limit=10),
        {"partitions"},
    ),
    "list_messages": (lambda admin, name: admin.list_messages(queue=name), {"messages"}),
    "get_trace_names": (lambda admin, name: admin.get_trace_names(limit=5), {"traceNames"}),
    "get_status": (lambda admin, name: admin.get_status(), set()),
    "get_queue_stats": (lambda admin, name: admin.get_queue_stats(limit=1000), {"queues"}),
    "get_queue_detail": (lambda admin, name: admin.get_queue_detail(name), {"queue", "partitions"}),
    "get_analytics": (lambda admin, name: admin.get_analytics(interval="hour"), set()),
    "list_consumer_groups": (
        lambda admin, name: admin.list_consumer_groups(),
        {"consumerGroups"},
    ),
    "refresh_consumer_stats": (lambda admin, name: admin.refresh_consumer_stats(), {"refreshed"}),
    "health": (lambda admin, name: admin.health(), {"status"}),
    "metrics": (lambda admin, name: admin.metrics(), set()),
    "get_maintenance_mode": (
        lambda admin, name: admin.get_maintenance_mode(),
        {"maintenanceMode", "bufferedMessages"},
    ),
    "get_pop_maintenance_mode": (
        lambda admin, name: admin.get_pop_maintenance_mode(),
        {"popMaintenanceMode"},
    ),
    "get_system_metrics": (lambda admin, name: admin.get_system_metrics(), set()),
    "get_worker_metrics": (lambda admin, name: admin.get_worker_metrics(), set()),
    "get_postgres_stats": (lambda admin, name: admin.get_postgres_stats(), set()),
}


def _calls(queen_mq: ModuleType) -> set[str]:
    return {call for call in vars(queen_mq.Admin) if not call.startswith("_")}


def test_every_call_is_tried(queen_mq: ModuleType) -> None:
    assert _calls(queen_mq) <= READS.keys() | TRIED_ELSEWHERE


async def test_every_look_at_the_server_is_answered(
    queen: Any, queen_mq: ModuleType, name: str
) -> None:
    await push(queen, name, {"n": 1}, {"n": 2}, partition="p")
    await pop(queen, name, group=name)
    for call in sorted(READS.keys() & _calls(queen_mq)):
        read, keys = READS[call]
        answer = await read(queen.admin, name)
        assert isinstance(answer, dict), call
        assert keys <= answer.keys(), (call, answer)


async def test_a_queue_is_shown_with_its_figures(queen: Any, name: str) -> None:
    await push(queen, name, 1, 2, partition="a")
    await push(queen, name, 3, partition="b")
    assert (await queen.admin.get_queue(name))["name"] == name
    assert await pending(queen, name) == 3
    listed = (await queen.admin.list_queues(limit=1000, search=name))["queues"]
    assert name in {queue["name"] for queue in listed}
    partitions = (await queen.admin.get_partitions(queue=name))["partitions"]
    assert sorted(partition["name"] for partition in partitions) == ["a", "b"]


async def test_lists_keep_to_their_limit(queen: Any, name: str) -> None:
    for n in range(3):
        await push(queen, f"{name}-{n}", *range(5), partition=str(n))
    assert len((await queen.admin.list_queues(limit=2))["queues"]) == 2
    assert len((await queen.admin.list_messages(queue=f"{name}-0", limit=3))["messages"]) == 3
    with pytest.raises(Exception, match="limit"):
        await queen.admin.list_queues(limit="many")


async def test_what_does_not_exist_is_told(queen: Any, name: str) -> None:
    for call in (queen.admin.get_queue(name), queen.admin.get_queue_detail(name)):
        with pytest.raises(Exception, match=name):
            await call


async def test_messages_are_listed_shown_and_deleted(queen: Any, name: str) -> None:
    pushed = await push(queen, name, "keep", "delete", "last")
    listed = (await queen.admin.list_messages(queue=name, partition="Default"))["messages"]
    assert sorted(data(listed)) == ["delete", "keep", "last"]
    address = pushed[1]["partition_id"], pushed[1]["transaction_id"]
    shown = await queen.admin.get_message(*address)
    assert (shown["data"], shown["queue"], shown["partition"]) == ("delete", name, "Default")
    await queen.admin.delete_message(*address)
    assert data(await pop(queen, name)) == ["keep", "last"]
    with pytest.raises(Exception, match=r"nothing|never|no "):
        await queen.admin.get_message(pushed[0]["partition_id"], "nothing-of-this-name")


async def test_figures_of_a_span_of_time_are_answered(queen: Any, name: str) -> None:
    await push(queen, name, 1)
    span = {
        "from": (datetime.now(UTC) - timedelta(hours=1)).isoformat(),
        "to": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
    }
    assert isinstance(await queen.admin.get_analytics(**span), dict)
    with pytest.raises(Exception, match="from"):
        await queen.admin.get_analytics(**span | {"from": "yesterday"})
    for figures_of_now in (queen.admin.get_system_metrics, queen.admin.get_worker_metrics):
        assert isinstance(await figures_of_now(**span), dict)
        assert isinstance(await figures_of_now(**span | {"from": "yesterday"}), dict)


async def test_the_server_is_healthy(queen: Any) -> None:
    assert (await queen.admin.health())["status"] == "healthy"


@of_version(NEWEST)
async def test_the_depth_of_a_queue_is_told_by_group_and_partition(queen: Any, name: str) -> None:
    await push(queen, name, 1, 2, partition="a")
    await push(queen, name, 3, partition="b")
    queue = queen.queue(name).group(name).partition("a").wait(False).batch(1)
    assert (await queen.ack(await queue.pop(), True, {"group": name}))["success"]
    depth = await queen.admin.get_queue_depth(name, group=name)
    assert (depth["queue"], depth["group"]) == (name, name)
    assert depth["pending"] == depth["effectivePending"] == 2
    assert depth["partitionsPending"] == 2
    assert depth["conflation"] is False
    by_name = {row["partition"]: row["pending"] for row in depth["partitions"]}
    assert by_name == {"a": 1, "b": 1}
    assert (await queen.admin.get_queue_depth(name))["pending"] == 2


@of_version(NEWEST)
async def test_what_the_newest_client_gave_up_it_still_gives_up(queen: Any, name: str) -> None:
    for call in NOT_IMPLEMENTED:
        with pytest.raises(NotImplementedError):
            await getattr(queen.admin, call)(*[name] * (1 if call == "clear_queue" else 2))


@of_version(OLD)
async def test_a_queue_is_cleared(queen: Any, name: str) -> None:
    await push(queen, name, 1, 2, 3)
    answer = await queen.admin.clear_queue(name)
    assert answer["cleared"] == 3
    assert await pop(queen, name) == []
    await push(queen, name, 4)
    assert data(await pop(queen, name)) == [4]


@of_version(OLD)
async def test_to_clear_one_partition_is_refused_and_not_taken_for_all(
    queen: Any, name: str
) -> None:
    await push(queen, name, 1)
    with pytest.raises(Exception, match="partition"):
        await queen.admin.clear_queue(name, "other")
    assert data(await pop(queen, name)) == [1]


@of_version(OLD)
async def test_pushes_are_buffered_in_maintenance_and_stored_after_it(
    queen: Any, name: str
) -> None:
    assert (await queen.admin.set_maintenance_mode(True))["maintenanceMode"] is True
    try:
        [result] = await push(queen, name, "buffered")
        assert result["status"] == "buffered"
        assert (await queen.admin.get_maintenance_mode())["maintenanceMode"] is True
        assert await pop(queen, name) == []
    finally:
        assert (await queen.admin.set_maintenance_mode(False))["maintenanceMode"] is False
    [message] = await queen.queue(name).wait(True).timeout_millis(15_000).batch(10).pop()
    assert message["data"] == "buffered"
    assert message["transactionId"] == result["transaction_id"]


@of_version(OLD)
async def test_pops_are_empty_in_their_maintenance(queen: Any, name: str) -> None:
    await push(queen, name, "kept")
    assert (await queen.admin.set_pop_maintenance_mode(True))["popMaintenanceMode"] is True
    try:
        assert await pop(queen, name) == []
        assert (await queen.admin.get_pop_maintenance_mode())["popMaintenanceMode"] is True
    finally:
        await queen.admin.set_pop_maintenance_mode(False)
    assert data(await pop(queen, name)) == ["kept"]
