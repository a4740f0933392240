"""The mark of a command over HTTP: told with each popped item, and set by no field of a request."""

from typing import Any

import pytest

from tests.server.application import JSON_TYPE, Api

COMMAND = {"command": "id"}
JOB = {"items": [{"queue": "jobs", "payload": COMMAND}]}


@pytest.fixture
async def queues(api: Api) -> None:
    await api.configure("jobs", "work", runsCommands=True)
    await api.configure("plain", "work")


async def marks(api: Api, queue: str) -> list[Any]:
    """What each popped message says of itself; None if nothing."""
    popped = await api.pop(queue, "batch=100&autoAck=true")
    return [message.get("isCommand") for message in popped["messages"]] if popped else []


@pytest.mark.usefixtures("queues")
async def test_a_popped_command_says_so_and_nothing_else_does(api: Api) -> None:
    assert (await api.post("/api/v1/jobs", JOB)).status == 201
    await api.push_payloads("plain", COMMAND)
    await api.push_payloads("ordered", COMMAND)
    assert await marks(api, "jobs") == [True]
    for queue in ("plain", "ordered"):
        assert await marks(api, queue) == [None]


@pytest.mark.usefixtures("queues")
async def test_an_ack_with_a_pop_is_told_of_it_too(api: Api) -> None:
    await api.post("/api/v1/jobs", JOB)
    await api.post("/api/v1/jobs", JOB)
    first = await api.pop("jobs", "batch=1")
    answer = await api.post("/api/v1/pop/queue/jobs", {"leaseId": first["leaseId"]})
    assert [message["isCommand"] for message in answer.json["messages"]] == [True]


@pytest.mark.usefixtures("queues")
@pytest.mark.parametrize("field", ["isCommand", "is_command", "commands"])
@pytest.mark.parametrize("value", [True, 1, "true"])
async def test_no_field_of_a_request_makes_a_command(api: Api, field: str, value: Any) -> None:
    item = {"queue": "plain", "payload": COMMAND}
    columns = {"queue": "plain", "payloads": [COMMAND]}
    push = {"type": "push", "items": [item]}
    for path, body in (
        ("push", {"items": [item | {field: value}]}),
        ("push", {"items": [item], field: value}),
        ("push/columns", columns | {field: value}),
        ("transaction", {"operations": [push | {field: value}]}),
        ("transaction", {"operations": [{"type": "push", "items": [item | {field: value}]}]}),
        ("jobs", {"items": [item | {field: value}]}),
        ("configure", {"queue": "plain", "options": {field: value}}),
    ):
        answer = await api.post(f"/api/v1/{path}", body)
        assert answer.status == 400, (path, answer)
        target = f"/api/v1/{path}?{field}={value}"
        assert (await api.post(target, {"items": [item]})).status == 400, path
    assert await marks(api, "plain") == []


@pytest.mark.usefixtures("queues")
async def test_headers_and_payloads_make_no_command(api: Api) -> None:
    claim = COMMAND | {"isCommand": True}
    headers = {**JSON_TYPE, "is-command": "true", "x-monarq-commands": "true"}
    item = {"queue": "plain", "payload": claim}
    assert (await api.post("/api/v1/push", {"items": [item]}, headers)).status == 201
    assert await marks(api, "plain") == [None]
