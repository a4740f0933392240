"""The maintenance switches over HTTP, on a real server with buffer files."""

import time
from typing import Any

from tests.server.application import Api
from tests.server.serving import ServerProcess

BOUND = 20.0


def push(server: ServerProcess, payload: Any) -> str:
    answer = server.post("/api/v1/push", {"items": [{"queue": "q", "payload": payload}]})
    assert answer.status == 201, answer
    return str(answer.json[0]["status"])


def popped(server: ServerProcess) -> list[Any]:
    answer = server.get("/api/v1/pop/queue/q?batch=100&autoAck=true")
    return [message["data"] for message in answer.json["messages"]] if answer.body else []


def test_in_maintenance_pushes_go_to_the_files_and_reach_the_store_afterwards(
    server: ServerProcess,
) -> None:
    path = "/api/v1/system/maintenance"
    assert server.get(path).json["maintenanceMode"] is False
    assert push(server, 1) == "queued"
    on = server.post(path, {"enabled": True}).json
    assert (on["maintenanceMode"], on["bufferHealthy"]) == (True, True)
    assert push(server, 2) == "buffered"
    assert push(server, 3) == "buffered"
    state = server.get(path).json
    assert state["bufferedMessages"] >= 1
    assert server.get("/api/v1/status/buffers").json["bytes"] > 0
    assert server.get("/health").json["state"] == "maintenance"
    assert popped(server) == [1]
    off = server.post(path, {"enabled": False}).json
    assert off["maintenanceMode"] is False
    found: list[Any] = []
    deadline = time.monotonic() + BOUND
    while len(found) < 2 and time.monotonic() < deadline:
        answer = server.get("/api/v1/pop/queue/q?batch=100&autoAck=true&wait=true&timeout=1000")
        found += [one["data"] for one in answer.json["messages"]] if answer.body else []
    assert found == [2, 3]


def test_in_pop_maintenance_pops_find_nothing(server: ServerProcess) -> None:
    path = "/api/v1/system/maintenance/pop"
    assert push(server, 1) == "queued"
    assert server.post(path, {"enabled": True}).json == {"popMaintenanceMode": True}
    assert popped(server) == []
    assert server.get(path).json == {"popMaintenanceMode": True}
    assert server.post(path, {"enabled": False}).json == {"popMaintenanceMode": False}
    assert popped(server) == [1]


async def test_a_switch_needs_a_clear_yes_or_no(memory_api: Api) -> None:
    for path in ("/api/v1/system/maintenance", "/api/v1/system/maintenance/pop"):
        for body in (None, {}, {"enabled": "yes"}, {"enabled": 1}, {"enabled": True, "x": 1}):
            answer = await memory_api.post(path, body)
            assert answer.status == 400, body
            assert (await memory_api.get(path)).status == 200


async def test_without_files_there_is_no_maintenance_for_pushes(memory_api: Api) -> None:
    """It would lose them."""
    answer = await memory_api.post("/api/v1/system/maintenance", {"enabled": True})
    assert (answer.status, answer.code) == (409, "conflict")
    assert (await memory_api.get("/api/v1/status/buffers")).json["enabled"] is False
