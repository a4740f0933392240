"""Items of queues that run commands are for callers with the role jobs, whatever the call; and
everybody with the role write may do the same on any other work queue."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from monarq.operations.operation import Role
from monarq.server.exchange import Principal
from monarq.server.routes import ROUTES
from tests.server.application import Answered, Api, answered

COMMAND = {"command": "true"}


@dataclass
class Scene:
    """An item that waits, one that is leased, and one that is dead."""

    api: Api
    queue: str
    waiting: str
    leased: dict[str, Any]
    dead: str
    letter: str

    @property
    def lease(self) -> str:
        return str(self.leased["leaseId"])

    @property
    def partition(self) -> str:
        return str(self.leased["partitionId"])

    @property
    def answer(self) -> dict[str, Any]:
        """To the one that is leased."""
        return {name: self.leased[name] for name in ("transactionId", "partitionId", "leaseId")}

    async def state(self) -> Any:
        items = (await self.api.get(f"/api/v1/items?queue={self.queue}")).json
        letters = (await self.api.get(f"/api/v1/dlq?queue={self.queue}")).json
        output = (await self.api.get(f"/api/v1/items/{self.leased['id']}/output?attempt=1")).json
        queue = (await self.api.get(f"/api/v1/resources/queues/{self.queue}")).json
        return items, letters, output, queue


async def enqueue(api: Api, queue: str) -> str:
    path = "jobs" if queue == "jobs" else "push"
    answer = await api.post(f"/api/v1/{path}", {"items": [{"queue": queue, "payload": COMMAND}]})
    assert answer.status == 201, answer
    return str(answer.json[0]["message_id"])


async def lease(api: Api, queue: str) -> dict[str, Any]:
    return dict((await api.pop(queue, "batch=1"))["messages"][0])


@pytest.fixture(params=["jobs", "plain"])
async def scene(request: pytest.FixtureRequest, api: Api) -> Scene:
    queue = str(request.param)
    await api.configure(queue, "work", runsCommands=queue == "jobs")
    dead = await enqueue(api, queue)
    message = await lease(api, queue)
    body = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
    await api.post("/api/v1/ack", body | {"status": "dead"})
    [letter] = (await api.get("/api/v1/dlq")).json["messages"]
    await enqueue(api, queue)
    leased = await lease(api, queue)
    return Scene(api, queue, await enqueue(api, queue), leased, dead, letter["id"])


Call = Callable[[Scene], Awaitable[Answered]]


def post(path: str, body: Callable[[Scene], Any] = lambda scene: None) -> Call:
    return lambda s: s.api.post(path.format(s=s), body(s))


#: By the path of the route; several ways where they go different ways.
CALLS: dict[tuple[str, str], list[Call]] = {
    ("GET", "/api/v1/pop/queue/{queue}"): [
        lambda s: s.api.get(f"/api/v1/pop/queue/{s.queue}"),
        lambda s: s.api.get(f"/api/v1/pop/queue/{s.queue}?autoAck=true"),
        lambda s: s.api.get(f"/api/v1/pop/queue/{s.queue}?wait=true&timeout=1000&consumer=me"),
    ],
    ("GET", "/api/v1/pop/queue/{queue}/partition/{partition}"): [
        lambda s: s.api.get(f"/api/v1/pop/queue/{s.queue}/partition/Default")
    ],
    ("POST", "/api/v1/pop/queue/{queue}"): [
        post("/api/v1/pop/queue/{s.queue}", lambda s: {"acknowledgments": []}),
    ],
    ("POST", "/api/v1/pop/queue/{queue}/partition/{partition}"): [
        post("/api/v1/pop/queue/{s.queue}/partition/Default", lambda s: {"acknowledgments": []}),
    ],
    ("POST", "/api/v1/ack"): [
        post("/api/v1/ack", lambda s: s.answer),
        post("/api/v1/ack", lambda s: {"leaseId": s.lease}),
        post("/api/v1/ack", lambda s: {"leaseId": s.lease, "status": "failed", "error": "no"}),
        post("/api/v1/ack", lambda s: s.answer | {"leaseId": None, "status": "dead"}),
    ],
    ("POST", "/api/v1/ack/batch"): [
        post("/api/v1/ack/batch", lambda s: {"acknowledgments": [s.answer]}),
        post("/api/v1/ack/batch", lambda s: {"leaseId": s.lease, "status": "release"}),
    ],
    ("POST", "/api/v1/pop"): [
        post("/api/v1/pop?namespace=none", lambda s: {"acknowledgments": [s.answer]}),
        post("/api/v1/pop?task=none", lambda s: {"leaseId": s.lease}),
    ],
    ("POST", "/api/v1/transaction"): [
        post("/api/v1/transaction", lambda s: {"operations": [{"type": "ack"} | s.answer]}),
        post(
            "/api/v1/transaction", lambda s: {"operations": [{"type": "ack", "leaseId": s.lease}]}
        ),
    ],
    ("POST", "/api/v1/lease/{leaseId}/extend"): [
        post("/api/v1/lease/{s.lease}/extend", lambda s: {"seconds": 5000})
    ],
    ("DELETE", "/api/v1/messages/{partitionId}/{transactionId}"): [
        lambda s: s.api.request("DELETE", f"/api/v1/messages/{s.partition}/{s.waiting}", None, {})
    ],
    ("POST", "/api/v1/messages/{partitionId}/{transactionId}/retry"): [
        post("/api/v1/messages/{s.partition}/{s.dead}/retry")
    ],
    ("POST", "/api/v1/messages/{partitionId}/{transactionId}/dlq"): [
        post("/api/v1/messages/{s.partition}/{s.leased[id]}/dlq")
    ],
    ("POST", "/api/v1/items/{id}/cancel"): [
        post("/api/v1/items/{s.waiting}/cancel"),
        post("/api/v1/items/{s.leased[id]}/cancel"),
    ],
    ("POST", "/api/v1/items/{id}/retry"): [
        post("/api/v1/items/{s.dead}/retry"),
    ],
    ("POST", "/api/v1/items/{id}/output"): [
        post("/api/v1/items/{s.leased[id]}/output", lambda s: {"attempt": 1, "data": "eA=="})
    ],
    ("POST", "/api/v1/dlq/redrive"): [
        post("/api/v1/dlq/redrive", lambda s: {"queue": s.queue}),
        post("/api/v1/dlq/redrive", lambda s: {"ids": [s.letter]}),
        post("/api/v1/dlq/redrive", lambda s: {"all": True}),
    ],
    ("POST", "/api/v1/configure"): [
        post(
            "/api/v1/configure",
            lambda s: {"queue": s.queue, "options": {"expireTimeout": 0.001}},
        ),
    ],
    ("POST", "/api/v1/resources/queues/{queue}/clear"): [
        post("/api/v1/resources/queues/{s.queue}/clear"),
        post("/api/v1/resources/queues/{s.queue}/clear", lambda s: {"keepLeased": True}),
    ],
    ("DELETE", "/api/v1/queues/{queue}/clear"): [
        lambda s: s.api.request("DELETE", f"/api/v1/queues/{s.queue}/clear", None, {})
    ],
    ("POST", "/api/v1/resources/queues/{queue}/pause"): [
        post("/api/v1/resources/queues/{s.queue}/pause")
    ],
    ("DELETE", "/api/v1/resources/queues/{queue}"): [
        lambda s: s.api.request("DELETE", f"/api/v1/resources/queues/{s.queue}", None, {})
    ],
    ("DELETE", "/api/v1/dlq"): [
        lambda s: s.api.request("DELETE", f"/api/v1/dlq?queue={s.queue}", None, {})
    ],
}
#: Calls that change no item.
OF_NO_ITEM = {
    ("GET", "/api/v1/pop"),  # finds ordered queues only
    ("POST", "/api/v1/push"),
    ("POST", "/api/v1/push/columns"),
    ("POST", "/api/v1/consumer-groups/{group}/queues/{queue}/seek"),
    ("POST", "/api/v1/consumer-groups/{group}/queues/{queue}/partitions/{partition}/seek"),
    ("POST", "/api/v1/consumer-groups/{group}/queues/{queue}/partitions/{partition}/skip"),
    ("POST", "/api/v1/consumer-groups/{group}/subscription"),
    ("POST", "/api/v1/traces"),
    ("PUT", "/api/v1/records/{kind}/{key}"),
    ("DELETE", "/api/v1/records/{kind}/{key}"),
    ("POST", "/api/v1/export/archived"),
    ("DELETE", "/api/v1/consumer-groups/{group}"),
    ("DELETE", "/api/v1/consumer-groups/{group}/queues/{queue}"),
    ("POST", "/api/v1/import"),  # asks for the right itself
    ("POST", "/api/v1/resources/queues/{queue}/resume"),  # is as pause
    ("POST", "/api/v1/system/maintenance"),
    ("POST", "/api/v1/system/maintenance/pop"),
}
CASES = [
    pytest.param(route, number, id=f"{route[0]} {route[1]} {number}")
    for route, calls in CALLS.items()
    for number in range(len(calls))
]


def outcomes(answer: Answered) -> list[tuple[bool, str | None]]:
    """Whether each thing that was asked for was done, and its error."""
    if answer.status == 200 and isinstance(answer.json, list):
        return [(one["success"], one["error"]) for one in answer.json]
    if answer.status == 200 and answer.json.get("acknowledged"):
        return [(one["success"], one["error"]) for one in answer.json["acknowledged"]]
    if answer.status >= 400:
        assert answer.status == 403, answer
        return [(False, answer.json["error"])]
    return [(True, None)]


def test_every_route_that_changes_something_is_here_or_is_of_no_item() -> None:
    """Routes for admins too: without authentication everybody is one who may run no commands."""
    changing = {
        (route.method, route.path)
        for route in ROUTES
        if route.role is Role.WRITE or (route.role is Role.ADMIN and route.method != "GET")
    }
    assert changing <= CALLS.keys() | OF_NO_ITEM


@pytest.mark.parametrize(("route", "number"), CASES)
@pytest.mark.parametrize("role", [Role.WRITE, Role.JOBS])
async def test_items_of_queues_that_run_commands_need_the_role_jobs(
    scene: Scene, route: tuple[str, str], number: int, role: Role
) -> None:
    if any((one.method, one.path) == route and one.role is Role.ADMIN for one in ROUTES):
        # Its own role is another one: here it matters only where an admin may not run commands.
        scene.api.principal = _Refused("me", Role.ADMIN) if role is Role.WRITE else ADMIN
    else:
        scene.api.principal = Principal("me", role)
    before = await scene.state()
    answer = await CALLS[route][number](scene)
    found = outcomes(answer)
    if role is Role.WRITE and scene.queue == "jobs":
        for done, error in found:
            assert not done, answer
            assert "needs the role jobs or admin" in (error or ""), answer
        assert await scene.state() == before
    else:
        assert [done for done, _ in found] == [True] * len(found), answer
        assert await scene.state() != before


class _Refused(Principal, frozen=True):
    """One who may do everything else."""

    @property
    def may_run_commands(self) -> bool:
        return False


ADMIN = Principal("me", Role.ADMIN)


async def test_of_a_batch_only_the_commands_are_refused(scene: Scene) -> None:
    await scene.api.configure("other", "work")
    await enqueue(scene.api, "other")
    other = await lease(scene.api, "other")
    scene.api.principal = Principal("me", Role.WRITE)
    of_other = {name: other[name] for name in ("transactionId", "partitionId", "leaseId")}
    acks = [scene.answer, of_other]
    answer = await scene.api.post("/api/v1/ack/batch", {"acknowledgments": acks})
    first, second = answer.json
    assert second["success"]
    assert first["success"] is (scene.queue == "plain")
    assert first.get("code") == (None if scene.queue == "plain" else "forbidden")


async def test_a_pop_that_waits_is_refused_when_its_queue_comes_to_run_commands(api: Api) -> None:
    """The queue is made while the pop is parked."""
    api.principal = Principal("me", Role.WRITE)
    waiting = api.handle("GET", "/api/v1/pop/queue/jobs?wait=true&timeout=20000", None, {})
    api.principal = ADMIN
    await api.configure("jobs", "work", runsCommands=True)
    await enqueue(api, "jobs")
    assert (await answered(waiting)).status == 403
    assert (await api.pop("jobs"))["messages"]


async def test_reading_is_left_to_readers(scene: Scene) -> None:
    scene.api.principal = Principal("me", Role.READ)
    for path in (
        f"items?queue={scene.queue}",
        f"items/{scene.waiting}",
        f"messages/{scene.partition}/{scene.waiting}",
        "dlq",
        f"items/{scene.leased['id']}/output?attempt=1",
    ):
        assert (await scene.api.get(f"/api/v1/{path}")).status == 200, path
