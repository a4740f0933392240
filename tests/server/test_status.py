"""Health, status and what happened over time, over HTTP."""

import asyncio
from typing import Any

import pytest

from monarq.times import iso
from tests.server.application import BOUND, Api


async def points(api: Api, query: str) -> list[dict[str, Any]]:
    answer = await api.get(f"/api/v1/status/analytics?{query}")
    assert answer.status == 200, answer
    return list(answer.json["dataPoints"])


async def roll_up(api: Api) -> None:
    """Let a minute pass, and wait until the counters are noted: the broker may be at it too."""
    now = api.clock.advance(60)
    store = api.broker.store
    async with asyncio.timeout(BOUND):
        while True:
            await store.lifecycle()
            noted = {one.queue: one for one in (await store.metrics_before(now + 1)).rows}
            queues = (await store.list_queues()).rows
            if all(
                one.name in noted
                and (noted[one.name].pushed, noted[one.name].completed)
                == (one.counts.pushed, one.counts.completed)
                for one in queues
            ):
                return
            await asyncio.sleep(0)


async def test_a_broker_that_serves_is_healthy_and_says_so_to_anyone(memory_api: Api) -> None:
    answer = await memory_api.get("/health")
    assert answer.status == 200
    assert (answer.json["status"], answer.json["state"]) == ("healthy", "serving")
    assert answer.json["store"] == "connected"


async def test_a_broker_that_drains_is_not_healthy(memory_api: Api) -> None:
    memory_api.broker.drain()
    answer = await memory_api.get("/health")
    assert (answer.status, answer.json["status"]) == (503, "unhealthy")


async def test_status_sums_up_queues_and_the_broker(api: Api) -> None:
    await api.push_payloads("q", 1, 2)
    await api.push({"queue": "n", "payload": 1, "namespace": "ns"})
    status = (await api.get("/api/v1/status")).json
    assert (status["state"], status["queueCount"], status["partitions"]) == ("serving", 2, 2)
    assert status["messages"]["pending"] == 3
    assert (status["storeOk"], status["buffer"]["route"]) == (True, "direct")
    part = (await api.get("/api/v1/status?namespace=ns")).json
    assert (part["queueCount"], part["messages"]["pending"]) == (1, 1)
    assert (await api.get("/api/v1/status?color=red")).status == 400


async def test_a_queue_is_shown_with_its_groups_and_partitions(api: Api) -> None:
    await api.push_payloads("q", 1, partition="a")
    await api.push_payloads("q", 2, partition="b")
    await api.data("q", "consumerGroup=g&autoAck=true&batch=1")
    detail = (await api.get("/api/v1/status/queues/q")).json
    assert detail["queue"]["name"] == "q"
    assert [group["name"] for group in detail["consumerGroups"]] == ["g"]
    assert [one["name"] for one in detail["partitions"]] == ["a", "b"]
    few = (await api.get("/api/v1/status/queues/q?limit=1")).json
    assert len(few["partitions"]) == 1
    assert (await api.get("/api/v1/status/queues/x")).status == 404
    [row] = (await api.get("/api/v1/status/queues")).json["queues"]
    assert (row["name"], row["messages"]["pushed"]) == ("q", 2)


async def test_analytics_tell_what_happened_in_each_interval(api: Api) -> None:
    begin = api.clock.now()
    api.clock.advance(3600)
    await api.push_payloads("q", 1, 2, 3)
    await roll_up(api)
    api.clock.advance(3600)
    await api.data("q", "batch=2&autoAck=true")
    await roll_up(api)
    found = await points(api, f"interval=hour&from={iso(begin)}")
    assert [(one["pushed"], one["completed"], one["pending"]) for one in found] == [
        (0, 0, 0),
        (3, 0, 3),
        (0, 2, 1),
    ]
    assert found[1]["messages"] == 3
    assert all(one["timestamp"].endswith(":00:00.000000Z") for one in found)


async def test_the_first_interval_counts_only_what_happened_in_it(api: Api) -> None:
    """The counters are sums since the queue was made: what was before must not be counted."""
    await api.push_payloads("q", *range(10))
    await roll_up(api)
    api.clock.advance(7200)
    await api.push_payloads("q", 1)
    await roll_up(api)
    [only] = await points(api, f"interval=hour&from={iso(api.clock.now())}")
    assert (only["pushed"], only["pending"]) == (1, 11)


async def test_analytics_are_of_one_queue_or_of_those_with_a_label(api: Api) -> None:
    await api.push({"queue": "a", "payload": 1, "namespace": "n", "task": "t"})
    await api.push_payloads("b", 1, 2)
    await roll_up(api)
    now = f"from={iso(api.clock.now())}"

    async def pushed(query: str) -> int:
        return sum(one["pushed"] for one in await points(api, f"{now}&{query}"))

    assert await pushed("") == 3
    assert await pushed("queue=b") == 2
    assert await pushed("namespace=n") == 1
    assert await pushed("task=t") == 1
    assert await pushed("namespace=other") == 0
    assert (await api.get(f"/api/v1/status/analytics?{now}&queue=x")).status == 404


async def test_many_points_are_read_page_by_page(
    memory_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monarq.server.analytics._STEP", 3)
    begin = memory_api.clock.now()
    for _ in range(10):
        for queue in "ab":
            await memory_api.push_payloads(queue, 1)
        await roll_up(memory_api)
    found = await points(memory_api, f"interval=minute&from={iso(begin)}")
    assert sum(one["pushed"] for one in found) == 20
    assert found[-1]["pending"] == 20
    monkeypatch.setattr("monarq.server.analytics.MAX_POINTS", 5)
    path = f"/api/v1/status/analytics?interval=minute&from={iso(begin)}"
    assert (await memory_api.get(path)).status == 400


@pytest.mark.parametrize(
    "query",
    [
        "interval=year",
        "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z",
        "interval=minute&from=2020-01-01T00:00:00Z",
        "from=now",
    ],
)
async def test_a_bad_range_is_refused(memory_api: Api, query: str) -> None:
    assert (await memory_api.get(f"/api/v1/status/analytics?{query}")).status == 400


async def test_operations_are_told_queue_by_queue(api: Api) -> None:
    for queue, count in (("a", 1), ("b", 2), ("c", 3)):
        await api.push_payloads(queue, *range(count))
    await roll_up(api)
    since = iso(api.clock.now())
    first = (await api.get(f"/api/v1/analytics/queue-ops?from={since}&limit=2")).json
    path = f"/api/v1/analytics/queue-ops?from={since}&limit=2&after={first['next']}"
    rest = (await api.get(path)).json
    found = {
        row["queue"]: sum(one["pushed"] for one in row["dataPoints"])
        for row in (*first["queues"], *rest["queues"])
    }
    assert found == {"a": 1, "b": 2, "c": 3}
    [only] = (await api.get(f"/api/v1/analytics/queue-ops?from={since}&queue=b")).json["queues"]
    assert only["queue"] == "b"


async def test_lag_is_told_by_queue_and_group(api: Api) -> None:
    await api.push_payloads("q", 1, 2)
    await api.data("q", "consumerGroup=g&batch=1&autoAck=true")
    api.clock.advance(10)
    [row] = (await api.get("/api/v1/analytics/queue-lag")).json["lag"]
    assert (row["queue"], row["consumerGroup"], row["lag"]) == ("q", "g", 1)
    assert row["lagSeconds"] == pytest.approx(10)


async def test_the_database_tells_how_it_fares(api: Api) -> None:
    stats = (await api.get("/api/v1/analytics/postgres-stats")).json
    figures = stats["figures"]
    assert stats["available"] is (figures["store"] == "postgresql")
    assert figures["databaseBytes"] > 0
    if stats["available"]:
        assert figures["connections"] > 0
        assert {"deadTuples", "oldestXminAge", "tables"} <= figures.keys()


async def test_the_process_and_its_broker_tell_what_they_did(api: Api) -> None:
    await api.push_payloads("q", 1, 2)
    await api.data("q", "batch=10&autoAck=true")
    worker = (await api.get("/api/v1/analytics/worker-metrics")).json
    assert worker["calls"]["push"]["messages"] == 2
    assert worker["calls"]["push"]["storeSeconds"]["count"] >= 1
    assert worker["pops"]["delivered"] == 1
    process = (await api.get("/api/v1/analytics/system-metrics")).json["process"]
    assert process["memoryBytes"] > 1_000_000
    assert process["cpuUserSeconds"] > 0


async def test_counters_need_no_refresh(memory_api: Api) -> None:
    assert (await memory_api.post("/api/v1/stats/refresh")).json == {"refreshed": False}
