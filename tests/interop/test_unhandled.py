"""The published client's consumers stop with messages in hand: none of those dies for it."""

from typing import Any

import httpx
import pytest

from tests.interop.verbs import data, pending, push
from tests.server.serving import ServerProcess


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 4])
async def test_what_each_leaves_when_its_limit_is_reached_is_handled_in_the_end(
    queen: Any, name: str, limit: int
) -> None:
    """As a job that is run every minute: the newest client takes more than it handles."""
    await queen.queue(name).config({"lease_time": 1, "retry_limit": 1}).create()
    await push(queen, name, *range(8))
    handled: list[int] = []

    async def handle(message: dict[str, Any]) -> None:
        handled.append(message["data"])

    for _ in range(20):
        await queen.queue(name).group("f").limit(limit).each().consume(handle)
        if len(handled) >= 8:
            break
    assert handled == list(range(8))
    assert (await queen.queue(name).dlq("f").get())["messages"] == []
    assert await pending(queen, name) == 0


@pytest.mark.slow
@pytest.mark.parametrize("batch", [None, 10])
async def test_what_each_leaves_behind_a_failing_message_is_handled_in_the_end(
    queen: Any, name: str, batch: int | None
) -> None:
    await queen.queue(name).config({"lease_time": 1, "retry_limit": 3, "retry_delay": 0}).create()
    await push(queen, name, *range(10))
    seen: list[int] = []

    async def handle(message: dict[str, Any]) -> None:
        seen.append(message["data"])
        if message["data"] == 2:
            raise RuntimeError("poison")

    consuming = queen.queue(name).group("f").each().limit(13)
    await (consuming.batch(batch) if batch else consuming).consume(handle)
    assert seen.count(2) == 4
    assert sorted(set(seen)) == list(range(10))
    dead = (await queen.queue(name).dlq("f").get())["messages"]
    assert data(dead) == [2]
    assert await pending(queen, name) == 0


async def test_pops_without_an_answer_kill_nothing_that_was_popped_with_others(
    server: ServerProcess, name: str
) -> None:
    """The requests of a client that takes many, waits for nothing and disappears."""
    async with httpx.AsyncClient(base_url=server.url) as http:
        options = {"leaseTime": 1, "retryLimit": 0}
        made = await http.post("/api/v1/configure", json={"queue": name, "options": options})
        assert made.is_success
        items = [{"queue": name, "payload": n} for n in range(5)]
        assert (await http.post("/api/v1/push", json={"items": items})).is_success
        sizes: list[int] = []
        for _ in range(3):
            asked = {"batch": 5, "autopilot": "true", "wait": "true", "timeout": 5000}
            popped = await http.get(f"/api/v1/pop/queue/{name}", params=asked)
            sizes.append(len(popped.json()["messages"]))
        assert sizes == [5, 2, 1]
        dead = await http.get("/api/v1/dlq", params={"queue": name})
        assert dead.json()["messages"] == []
