"""Calls of the dashboard's API, and what gives it something to show."""

from typing import Any
from urllib.parse import quote

from tests.server.application import Api

BOARD = "/api/v1/dashboard"
MINUTE = 60


async def board(api: Api, target: str) -> Any:
    """As it is now, not as it was a moment ago."""
    await api.service.sampler.current(anew=True)
    answer = await api.get(f"{BOARD}/{target}")
    assert answer.status == 200, answer
    return answer.json


async def fail(
    api: Api, queue: str, group: str, partition: str, error: str, status: str = "failed"
) -> None:
    popped = await api.pop(queue, f"consumerGroup={quote(group)}&partitions=1&batch=1")
    assert popped["partition"] == partition
    answer = await api.post(
        "/api/v1/ack/batch",
        {"leaseId": popped["leaseId"], "status": status, "error": error, "consumerGroup": group},
    )
    assert answer.status == 200


async def consume(api: Api, queue: str, group: str, batch: int = 100) -> int:
    popped = await api.pop(queue, f"consumerGroup={group}&batch={batch}&partitions=100")
    if popped is None:
        return 0
    body = {"leaseId": popped["leaseId"], "status": "completed", "consumerGroup": group}
    assert (await api.post("/api/v1/ack/batch", body)).status == 200
    return len(popped["messages"])
