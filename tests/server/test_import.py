"""An import keeps producers and attempts, and only an admin may import."""

import pytest

from monarq.operations.operation import Role
from monarq.server.exchange import Principal
from tests.server.application import Api

IMPORT = "/api/v1/import"


async def test_an_import_keeps_producer_and_attempts(api: Api) -> None:
    api.principal = Principal("boss", Role.ADMIN)
    await api.configure("w", kind="work", maxAttempts=5)
    item = {"queue": "w", "payload": 1, "transactionId": "a", "attempts": 4}
    answer = await api.post(IMPORT, {"items": [item], "producer": "ann"})
    assert (answer.status, answer.json[0]["status"]) == (201, "queued")
    again = await api.post(IMPORT, {"items": [item], "producer": "ann"})
    assert again.json[0]["status"] == "duplicate"
    await api.post(IMPORT, {"items": [{"queue": "q", "payload": 2}]})
    [popped] = (await api.pop("w"))["messages"]
    assert (popped["attempts"], popped["producerSub"]) == (5, "ann")
    [message] = (await api.pop("q"))["messages"]
    assert message["producerSub"] is None


@pytest.mark.parametrize("role", [Role.READ, Role.WRITE, Role.JOBS])
async def test_nobody_but_an_admin_imports(api: Api, role: Role) -> None:
    api.principal = Principal("ann", role)
    answer = await api.post(IMPORT, {"items": [{"queue": "q", "payload": 1}], "producer": "bob"})
    assert (answer.status, answer.code) == (403, "forbidden")
    for path in ("/api/v1/push", "/api/v1/jobs"):
        for field in ("producerSub", "producer", "attempts"):
            item = {"queue": "q", "payload": 1, field: 3}
            answer = await api.post(path, {"items": [item]})
            assert answer.status in (201, 400, 403), (path, field)
    rows = await api.get("/api/v1/messages?queue=q")
    if rows.status == 200:
        assert {row["producerSub"] for row in rows.json["messages"]} == {"ann"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"items": [{"queue": "q", "payload": 1, "attempts": 1}]}, "attempts"),
        ({"items": [{"queue": "q", "payload": 1, "attempts": -1}]}, "attempts"),
        ({"items": [{"queue": "q", "payload": 1}], "producer": ""}, "producer"),
        ({"items": [{"queue": "c", "payload": 1}], "commands": True}, "no shell command"),
        ({"items": [{"queue": "q", "payload": 1}], "owner": "x"}, "owner"),
    ],
)
async def test_a_malformed_import_stores_nothing(api: Api, body: object, field: str) -> None:
    await api.push_payloads("q", 0)
    await api.configure("c", kind="work", runsCommands=True)
    answer = await api.post(IMPORT, body)
    assert (answer.status, answer.code) == (400, "invalid_request"), answer
    assert field in answer.error
    assert await api.data("q") == [0]
    assert await api.pop("c") is None


async def test_an_import_of_nothing_is_an_empty_list(api: Api) -> None:
    answer = await api.post(IMPORT, {"items": []})
    assert (answer.status, answer.json) == (201, [])
