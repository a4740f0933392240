"""Items of work queues over HTTP."""

from typing import Any

import pytest

from tests.server.application import Api


async def work_queue(api: Api, *payloads: Any, **options: Any) -> list[str]:
    """Makes one with these items; their ids."""
    await api.configure("w", "work", **options)
    return [pushed["message_id"] for pushed in await api.push_payloads("w", *payloads)]


async def lease_one(api: Api) -> dict[str, Any]:
    popped = await api.pop("w", "batch=1&consumer=me")
    [message] = popped["messages"]
    return dict(message)


async def answer_with(api: Api, message: dict[str, Any], status: str, **more: Any) -> None:
    body = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
    answer = await api.post("/api/v1/ack", {**body, "status": status, **more})
    assert answer.json["success"] is True, answer


async def test_items_are_listed_in_the_order_in_which_they_were_pushed(api: Api) -> None:
    ids = await work_queue(api, *range(5))
    seen: list[str] = []
    pivot = ""
    while True:
        answer = (await api.get(f"/api/v1/items?queue=w&limit=2{pivot}")).json
        seen += [item["id"] for item in answer["items"]]
        if answer["next"] is None:
            break
        pivot = f"&pivot={answer['next']}"
    assert seen == ids
    both = await api.get("/api/v1/items?queue=w&pivot=a&after=b")
    assert both.status == 400


async def test_next_items_are_those_that_will_be_leased_first(api: Api) -> None:
    await api.configure("w", "work")
    for priority in (1, 900, 50):
        await api.push({"queue": "w", "payload": priority, "priority": priority})
    await api.push({"queue": "w", "payload": "later", "delaySeconds": 60})
    answer = (await api.get("/api/v1/items?queue=w&order=next")).json
    assert [item["data"] for item in answer["items"]] == [900, 50, 1]
    part = (await api.get("/api/v1/items?queue=w&order=next&limit=1&offset=1")).json
    assert [item["data"] for item in part["items"]] == [50]
    assert (await lease_one(api))["data"] == 900
    refused = await api.get("/api/v1/items?queue=w&order=next&state=done")
    assert refused.status == 400


async def test_items_are_found_by_state_and_by_transaction_id(api: Api) -> None:
    await work_queue(api, 1, 2)
    await api.push({"queue": "w", "payload": 3, "transactionId": "mine"})
    await lease_one(api)
    leased = (await api.get("/api/v1/items?queue=w&state=leased")).json["items"]
    assert [item["data"] for item in leased] == [1]
    assert leased[0]["leaseUntil"].endswith("Z")
    [mine] = (await api.get("/api/v1/items?queue=w&transactionId=mine")).json["items"]
    assert mine["data"] == 3
    assert (await api.get("/api/v1/items?queue=w&transactionId=no")).json["items"] == []
    assert (await api.get("/api/v1/items?queue=w&transactionId=mine&state=done")).json[
        "items"
    ] == []


async def test_an_item_tells_of_all_its_attempts(api: Api) -> None:
    [item_id] = await work_queue(api, 1, backoffBase=0)
    await answer_with(api, await lease_one(api), "failed", error="first")
    api.clock.advance(10)
    await answer_with(api, await lease_one(api), "completed", result={"code": 0})
    item = (await api.get(f"/api/v1/items/{item_id}")).json
    assert (item["state"], item["attempts"]) == ("done", 2)
    assert [one["outcome"] for one in item["history"]] == ["failed", "completed"]
    assert item["history"][0]["error"] == "first"
    assert "result" not in item["history"][0]
    assert item["history"][1]["result"] == {"code": 0}
    assert item["history"][1]["consumer"] == "me"


async def test_a_cancelled_item_is_not_leased_and_its_lease_ends(api: Api) -> None:
    [first, second] = await work_queue(api, 1, 2)
    leased = await lease_one(api)
    for item_id in (first, second):
        answer = await api.post(f"/api/v1/items/{item_id}/cancel")
        assert answer.json["state"] == "cancelled"
    assert await api.pop("w") is None
    body = {name: leased[name] for name in ("transactionId", "partitionId", "leaseId")}
    assert (await api.post("/api/v1/ack", body)).status == 409
    again = await api.post(f"/api/v1/items/{first}/cancel")
    assert (again.status, again.code) == (409, "conflict")


async def test_a_retried_item_starts_over(api: Api) -> None:
    [item_id] = await work_queue(api, 1, maxAttempts=1)
    await answer_with(api, await lease_one(api), "failed", error="boom")
    assert (await api.get(f"/api/v1/items/{item_id}")).json["state"] == "dead"
    item = (await api.post(f"/api/v1/items/{item_id}/retry")).json
    assert (item["state"], item["attempts"]) == ("ready", 0)
    assert (await lease_one(api))["id"] == item_id
    refused = await api.post(f"/api/v1/items/{item_id}/retry")
    assert (refused.status, refused.code) == (409, "conflict")


@pytest.mark.parametrize("call", ["", "/cancel", "/retry"])
async def test_an_item_that_does_not_exist_is_not_found(api: Api, call: str) -> None:
    await work_queue(api, 1)
    method = "POST" if call else "GET"
    assert (await api.request(method, f"/api/v1/items/1-999{call}", None, {})).status == 404
    assert (await api.request(method, f"/api/v1/items/999-1{call}", None, {})).status == 404
    assert (await api.request(method, f"/api/v1/items/nonsense{call}", None, {})).status == 400


async def test_an_ordered_queue_has_no_items(api: Api) -> None:
    await api.push_payloads("q", 1)
    answer = await api.get("/api/v1/items?queue=q")
    assert (answer.status, answer.code) == (409, "conflict")
    assert (await api.get("/api/v1/items?queue=x")).status == 404
    assert (await api.get("/api/v1/items")).status == 400


async def test_the_next_items_of_a_list_are_bounded_in_bytes(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monarq.store.queries.items.MAX_BYTES", 100_000)
    await api.configure("w", "work")
    await api.push_payloads("w", *("x" * 10_000 for _ in range(40)))
    large = (await api.get("/api/v1/items?queue=w&order=next&limit=40")).json["items"]
    assert 5 <= len(large) <= 10
    await api.configure("v", "work")
    await api.push_payloads("v", *range(40))
    small = (await api.get("/api/v1/items?queue=v&order=next&limit=30&offset=5")).json
    assert [item["data"] for item in small["items"]] == list(range(5, 35))
