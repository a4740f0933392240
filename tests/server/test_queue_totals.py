"""Sums over all queues: current where they are cheap, and kept for a while where they are not."""

import asyncio
from typing import Any

import pytest

from monarq.model import Page, QueueFlow
from monarq.server import snapshot
from tests.server.application import Api

PATHS = (
    "/api/v1/status",
    "/api/v1/resources/overview",
    "/api/v1/resources/namespaces",
    "/api/v1/resources/tasks",
)


async def test_sums_over_few_queues_are_always_current(api: Api) -> None:
    for number in range(1, 4):
        await api.push_payloads(f"q{number}", number)
        assert (await api.get("/api/v1/status")).json["queueCount"] == number
        assert (await api.get("/api/v1/resources/overview")).json["queues"] == number


async def test_slow_sums_are_read_once_for_all_callers_and_kept_for_a_while(
    memory_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "SLOW_SECONDS", -1.0)
    monkeypatch.setattr(snapshot, "KEPT_PER_READING", 1e9)
    monkeypatch.setattr(snapshot, "MOST_KEPT_SECONDS", 600.0)
    loop = asyncio.get_running_loop()
    reads, later, time = 0, 0.0, loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + later)
    read = memory_api.broker.store.queue_flows

    async def counted(**options: Any) -> Page[QueueFlow]:
        nonlocal reads, later
        reads += 1
        later += 0.001
        return await read(**options)

    monkeypatch.setattr(memory_api.broker.store, "queue_flows", counted, raising=False)
    await memory_api.push_payloads("q", 1)
    await asyncio.gather(*(memory_api.get(path) for path in PATHS * 5))
    assert reads == 1
    await memory_api.push_payloads("r", 1)
    assert (await memory_api.get(PATHS[0])).json["queueCount"] == 1
    later += 700.0
    assert (await memory_api.get(PATHS[0])).json["queueCount"] == 2
    assert reads == 2


async def test_sums_of_other_labels_are_kept_apart(
    memory_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "SLOW_SECONDS", -1.0)
    await memory_api.push({"queue": "q", "payload": 1, "namespace": "a"})
    await memory_api.push({"queue": "r", "payload": 1, "namespace": "b"})
    for _ in range(2):
        assert (await memory_api.get("/api/v1/status?namespace=a")).json["queueCount"] == 1
        assert (await memory_api.get("/api/v1/status?namespace=c")).json["queueCount"] == 0
        assert (await memory_api.get("/api/v1/status")).json["queueCount"] == 2


async def test_a_question_for_very_many_points_is_refused(
    memory_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory_api.push(*({"queue": f"q{number}", "payload": 1} for number in range(3)))
    path = "/api/v1/analytics/queue-ops?from=2026-01-01T00:00:00Z&to=2026-01-01T01:00:00Z"
    assert (await memory_api.get(path)).status == 200
    monkeypatch.setattr("monarq.server.analytics.MAX_ANSWERED", 100)
    answer = await memory_api.get(path)
    assert (answer.status, "ask for fewer queues" in answer.error) == (400, True)
