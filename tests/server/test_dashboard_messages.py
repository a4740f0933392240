"""What the dashboard finds of messages, items and dead letters."""

from typing import Any

import pytest

from tests.server.application import Api
from tests.server.board import BOARD, consume, fail


async def test_a_message_is_found_by_its_id_and_by_its_transaction_id(api: Api) -> None:
    [pushed] = await api.push(
        {"queue": "q", "payload": 1, "transactionId": "t 1", "partition": "p"}
    )
    await api.configure("w", "work")
    [item] = await api.push({"queue": "w", "payload": 1, "transactionId": "t 1"})
    by_name = (await api.get(f"{BOARD}/find?queue=q&transactionId=t%201")).json["found"]
    by_id = (await api.get(f"{BOARD}/find?transactionId={pushed['message_id']}")).json["found"]
    assert by_name == by_id
    assert (by_id[0]["kind"], by_id[0]["partition"]) == ("message", "p")
    [found] = (await api.get(f"{BOARD}/find?transactionId={item['message_id']}")).json["found"]
    assert (found["kind"], found["transactionId"]) == ("item", "t 1")
    assert (await api.get(f"{BOARD}/find?queue=q&transactionId=none")).json["found"] == []
    anywhere = (await api.get(f"{BOARD}/find?transactionId=t%201")).json
    assert {row["queue"] for row in anywhere["found"]} == {"q", "w"}
    assert (await api.get(f"{BOARD}/find?transactionId=none")).json["found"] == []
    assert (await api.get(f"{BOARD}/find?queue=none&transactionId=x")).status == 404


async def test_a_message_tells_its_state_and_its_deliveries_group_by_group(api: Api) -> None:
    [one, _] = await api.push_payloads("q", 1, 2)
    where = f"/api/v1/messages/{one['partition_id']}/{one['transaction_id']}"
    await fail(api, "q", "bad", "Default", "no")
    await consume(api, "q", "good", 1)
    await api.pop("q", "consumerGroup=busy&batch=1&consumer=me")
    await fail(api, "q", "gives up", "Default", "no use", status="dead")
    states = {row["group"]: row for row in (await api.get(f"{where}/groups")).json["groups"]}
    assert {name: row["state"] for name, row in states.items()} == {
        "bad": "retrying", "good": "done", "busy": "leased", "gives up": "dead"}  # fmt: skip
    assert (states["bad"]["attempts"], states["busy"]["consumer"]) == (1, "me")
    deliveries = (await api.get(f"{where}/deliveries")).json["deliveries"]
    assert [(row["group"], row["completed"], row["failed"]) for row in deliveries] == [
        ("gives up", 0, 0), ("good", 1, 0), ("bad", 0, 1)]  # fmt: skip
    assert [row["error"] for row in deliveries] == ["no use", None, "no"]
    assert (await api.get("/api/v1/messages/999/x/groups")).status == 404


async def test_dead_letters_are_grouped_and_redriven_by_their_error(api: Api) -> None:
    await api.configure("q", retryLimit=0)
    for error in ("timeout\nat 1", "timeout\nat 2", "no disk"):
        await api.push_payloads("q", 1)
        await fail(api, "q", "g", "Default", error)
    told = (await api.get(f"{BOARD}/dead-letters")).json
    assert [(row["error"], row["count"]) for row in told["errors"]] == [
        ("timeout", 2), ("no disk", 1)]  # fmt: skip
    assert told["total"] == 3
    assert (await api.get(f"{BOARD}/dead-letters?search=DISK")).json["total"] == 1
    listed = (await api.get("/api/v1/dlq?error=timeout")).json
    assert (listed["total"], len(listed["messages"])) == (2, 2)
    done = await api.post("/api/v1/dlq/redrive", {"error": "timeout"})
    assert done.json == {"redriven": 2}
    done = await api.request("DELETE", "/api/v1/dlq?error=no%20disk", None, {})
    assert done.json == {"deleted": 1}


async def test_items_are_searched_newest_first(api: Api) -> None:
    await api.configure("w", "work")
    for name in ("Apple pie", "banana", "apple juice"):
        await api.push({"queue": "w", "payload": {"cook": name}, "transactionId": f"id {name}"})
    found = (await api.get(f"{BOARD}/items?queue=w&search=APPLE")).json["items"]
    assert [item["data"]["cook"] for item in found] == ["apple juice", "Apple pie"]
    told = (await api.get(f"{BOARD}/items?queue=w&limit=2")).json
    assert (len(told["items"]), told["truncated"]) == (2, True)
    assert (await api.get(f"{BOARD}/items?queue=w&state=done")).json["items"] == []
    assert (await api.get(f"{BOARD}/items?queue=none")).status == 404


async def test_a_search_of_large_items_holds_only_so_much_of_them(
    memory_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory_api.configure("w", "work")
    await memory_api.push(*({"queue": "w", "payload": "x" * 2000} for _ in range(200)))
    monkeypatch.setattr("monarq.store.collecting.MAX_BYTES", 40_000)
    store = memory_api.broker.store
    read = store.newest_items
    lengths: list[int] = []

    async def counted(*names: Any, **options: Any) -> Any:
        page = await read(*names, **options)
        lengths.append(len(page.rows))
        return page

    monkeypatch.setattr(store, "newest_items", counted, raising=False)
    told = (await memory_api.get(f"{BOARD}/items?queue=w")).json
    assert (max(lengths) <= 20, len(told["items"]) <= 25, told["truncated"]) == (True, True, True)
    lengths.clear()
    told = (await memory_api.get(f"{BOARD}/items?queue=w&search=y&limit=1")).json
    assert (told["items"], told["truncated"], sum(lengths)) == ([], False, 200)
    assert max(lengths) <= 20
    # Also for one item, many are read at once.
    assert len(lengths) < 20


async def test_a_preview_says_what_a_seek_then_does_and_changes_nothing(api: Api) -> None:
    await api.push_payloads("q", *range(6))
    await consume(api, "q", "g", 4)
    path = "/api/v1/consumer-groups/g/queues/q"
    told = (await api.post(f"{path}/seek/preview", {"to": "start"})).json
    assert told == {"lag": 6, "replayed": 4, "skipped": 0, "partitions": 1, "leases": 0}
    of_one = await api.post(f"{path}/partitions/Default/seek/preview", {"to": "end"})
    assert of_one.json["skipped"] == 2
    assert await consume(api, "q", "g", 100) == 2
    assert (await api.post(f"{path}/seek", {"to": "start"})).json["lag"] == told["lag"]
    assert (await api.post(f"{path}/seek/preview", {})).status == 400
    assert (await api.post(f"{path}/partitions/none/seek/preview", {"seq": 1})).status == 404
