"""What a server says of itself while its store is away, with a real PostgreSQL that is killed."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import NewPostgresServer
from tests.server.serving import Answer, ServerProcess

BOUND = 60.0


def wait_for(look: Callable[[], Answer], wanted: Callable[[Answer], bool]) -> Answer:
    deadline = time.monotonic() + BOUND
    while True:
        answer = look()
        if wanted(answer):
            return answer
        assert time.monotonic() < deadline, answer


def push(server: ServerProcess, payload: Any) -> Any:
    items = [{"queue": "q", "payload": payload, "transactionId": f"t{payload}"}]
    answer = server.post("/api/v1/push", {"items": items})
    assert answer.status == 201, answer
    return answer.json[0]["status"]


def test_a_broker_without_its_store_is_degraded_keeps_pushes_and_recovers(
    new_postgres_server: NewPostgresServer, tmp_path: Path
) -> None:
    database = new_postgres_server()
    settings = {
        "store": database.dsn,
        "data_dir": str(tmp_path),
        "store_timeout_seconds": 2,
        "buffer_retry_seconds": 0.2,
    }
    with ServerProcess(settings) as server:
        assert push(server, 1) == "queued"
        database.kill()
        assert push(server, 2) == "buffered"
        health = wait_for(
            lambda: server.get("/health"), lambda answer: answer.json["status"] == "degraded"
        )
        assert (health.status, health.json["store"]) == (200, "disconnected")
        assert health.json["state"] == "store_down"
        status = server.get("/api/v1/status")
        assert (status.status, status.json["storeOk"]) == (200, False)
        assert status.json["storeError"]
        assert status.json["buffer"]["bytes"] > 0
        refused = server.get("/api/v1/resources/queues")
        assert (refused.status, refused.json["code"]) == (503, "store_unavailable")
        assert refused.headers["retry-after"] == "1"
        assert server.get("/openapi.json").status == 200
        database.start()
        wait_for(lambda: server.get("/health"), lambda answer: answer.json["status"] == "healthy")
        stored = wait_for(
            lambda: server.get("/api/v1/messages?queue=q"),
            lambda answer: answer.status == 200 and len(answer.json["messages"]) == 2,
        )
        assert [row["data"] for row in stored.json["messages"]] == [1, 2]
        assert server.get("/api/v1/status/buffers").json["healthy"] is True


def test_without_buffer_files_a_broker_without_its_store_is_not_healthy(
    new_postgres_server: NewPostgresServer, tmp_path: Path
) -> None:
    database = new_postgres_server()
    settings = {
        "store": database.dsn,
        "data_dir": str(tmp_path),
        "store_timeout_seconds": 2,
        "buffer_enabled": False,
    }
    with ServerProcess(settings) as server:
        assert server.get("/health").status == 200
        database.kill()
        server.post("/api/v1/push", {"items": [{"queue": "q", "payload": 1}]})
        health = wait_for(lambda: server.get("/health"), lambda answer: answer.status == 503)
        assert health.json["status"] == "unhealthy"
