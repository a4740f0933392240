"""The dashboard's lists of queues, groups and partitions."""

from typing import Any
from urllib.parse import quote

import pytest

from tests.server.application import Api
from tests.server.board import BOARD, MINUTE, board, consume, fail


async def test_queues_are_searched_sorted_and_paged(api: Api) -> None:
    for index, name in enumerate(["beta", "Alpha", "gamma", "alphabet"]):
        await api.push_payloads(name, *range(index + 1))
    await api.configure("work", "work")
    names = [line["name"] for line in (await board(api, "queues"))["queues"]]
    assert names == sorted(["beta", "Alpha", "gamma", "alphabet", "work"])
    found = await board(api, "queues?search=ALPHA&sort=pending&order=desc")
    assert [line["name"] for line in found["queues"]] == ["alphabet", "Alpha"]
    assert found["total"] == 2
    page = await board(api, "queues?sort=stored&order=desc&limit=2&offset=1")
    assert [line["name"] for line in page["queues"]] == ["gamma", "Alpha"]
    assert page["total"] == 5
    assert [line["name"] for line in (await board(api, "queues?kind=work"))["queues"]] == ["work"]
    for sort in ("name", "pending", "lagSeconds", "in", "out", "deadLetters", "partitions"):
        assert len((await board(api, f"queues?sort={sort}&order=desc"))["queues"]) == 5
    assert (await api.get(f"{BOARD}/queues?sort=colour")).status == 400


async def test_very_many_queues_are_listed_from_one_look(memory_api: Api) -> None:
    api = memory_api
    for start in range(0, 3000, 1000):
        await api.push(*({"queue": f"q{n:05}", "payload": n} for n in range(start, start + 1000)))
    told = await board(api, "queues?search=q029&limit=10&offset=95")
    assert told["total"] == 100
    assert [line["name"] for line in told["queues"]] == [f"q{n:05}" for n in range(2995, 3000)]
    assert (await board(api, "overview"))["totals"]["queues"] == 3000


async def test_a_queue_is_told_with_its_groups_and_what_it_is_the_dead_queue_of(api: Api) -> None:
    name = 'a "queue" / with <b>& ünïcödé'
    await api.configure(name, leaseTime=77)
    await api.configure("other", deadQueue=name)
    await api.push_payloads(name, 1, 2)
    await consume(api, quote(name, safe=""), "g", 1)
    told = await board(api, f"queues/{quote(name, safe='')}")
    assert told["line"]["name"] == name
    assert told["options"]["leaseTime"] == 77
    assert [(one["name"], one["lag"], one["completed"]) for one in told["groups"]] == [("g", 1, 1)]
    assert told["deadQueueOf"] == ["other"]
    assert (await api.get(f"{BOARD}/queues/none")).status == 404


async def test_no_page_of_one_queue_walks_through_all_of_them(
    memory_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = memory_api
    await api.configure("q")
    for name in ("two", "one"):
        await api.configure(name, deadQueue="q")
    await api.service.sampler.current(anew=True)

    async def refuse(*names: Any, **options: Any) -> Any:
        raise AssertionError("all queues were listed")

    monkeypatch.setattr(api.broker.store, "list_queues", refuse, raising=False)
    assert (await board(api, "queues/q"))["deadQueueOf"] == ["one", "two"]
    await api.configure("three", deadQueue="q")
    losses = (await api.get(f"{BOARD}/queues/q/losses")).json
    assert losses["delete"]["blockedBy"] == ["one", "three", "two"]


async def test_losses_are_what_clearing_and_deleting_then_lose(api: Api) -> None:
    await api.configure("q", retryLimit=0)
    await api.configure("other", deadQueue="q")
    await api.push_payloads("q", 1, 2, 3)
    await fail(api, "q", "g", "Default", "no")
    told = (await api.get(f"{BOARD}/queues/q/losses")).json
    assert told["clear"]["messages"] == 3
    assert (told["delete"]["deadLetters"], told["delete"]["groups"]) == (1, 1)
    assert told["delete"]["blockedBy"] == ["other"]
    assert any("dead queue of `other`" in text for text in told["delete"]["text"])
    cleared = await api.post("/api/v1/resources/queues/q/clear")
    assert cleared.json["cleared"] == told["clear"]["messages"]
    assert (await api.get(f"{BOARD}/queues/none/losses")).status == 404


async def test_losses_of_a_work_queue_are_told_for_each_way_to_clear_it(api: Api) -> None:
    await api.configure("w", kind="work")
    await api.push_payloads("w", 1, 2, 3)
    await api.push({"queue": "w", "payload": 4, "delaySeconds": 60})
    await api.pop("w", "batch=1")
    told = (await api.get(f"{BOARD}/queues/w/losses")).json
    assert [told[one]["messages"] for one in ("clear", "clearScheduled", "clearUnleased")] == [
        4,
        1,
        3,
    ]
    assert told["clearScheduled"]["text"] == ["1 scheduled item will be removed."]
    assert told["clearUnleased"]["text"] == ["3 items will be removed."]
    clear = "/api/v1/resources/queues/w/clear"
    assert (await api.post(clear, {"scheduledOnly": True})).json["cleared"] == 1
    assert (await api.post(clear, {"keepLeased": True})).json["cleared"] == 2
    await api.push_payloads("q", 1)
    told = (await api.get(f"{BOARD}/queues/q/losses")).json
    assert (told["clearScheduled"], told["clearUnleased"]) == (None, None)


async def test_groups_are_searched_sorted_and_paged(api: Api) -> None:
    await api.push_payloads("a", *range(5))
    await api.push_payloads("b", *range(9))
    for queue, group, count in (("a", "slow", 1), ("a", "fast", 5), ("b", "slow", 2)):
        await consume(api, queue, group, count)
    lines = (await board(api, "groups?sort=lag&order=desc"))["groups"]
    assert [(line["queue"], line["name"], line["lag"]) for line in lines] == [
        ("b", "slow", 7), ("a", "slow", 4), ("a", "fast", 0)]  # fmt: skip
    assert (await board(api, "groups?search=fast"))["total"] == 1
    assert (await board(api, "groups?group=slow&queue=b"))["total"] == 1
    states = {line["name"]: line["state"] for line in lines if line["queue"] == "a"}
    assert states == {"slow": "working", "fast": "caught up"}
    api.clock.advance(5 * MINUTE)
    await board(api, "groups")
    lines = (await board(api, "groups?group=slow"))["groups"]
    assert {line["state"] for line in lines} == {"stuck"}


async def test_partitions_tell_who_holds_them_and_what_is_next(api: Api) -> None:
    await api.configure("q", retryDelay=60_000)
    for index in range(4):
        await api.push_payloads("q", *range(index + 1), partition=f"p{index}")
    await api.pop("q/partition/p0", "consumerGroup=g&consumer=me")
    popped = await api.pop("q/partition/p1", "consumerGroup=g&batch=1")
    await api.post(
        "/api/v1/ack/batch",
        {"leaseId": popped["leaseId"], "status": "failed", "consumerGroup": "g"},
    )
    told = await board(api, "queues/q/partitions")
    assert told["group"] == "g"
    lines = {line["partition"]: line for line in told["partitions"]}
    assert (lines["p0"]["state"], lines["p0"]["consumer"]) == ("leased", "me")
    assert (lines["p1"]["state"], lines["p1"]["attempts"]) == ("retrying", 1)
    assert (lines["p3"]["state"], lines["p3"]["lag"], lines["p3"]["headSeq"]) == ("available", 4, 1)
    found = await board(api, "queues/q/partitions?sort=lag&order=desc&limit=1&offset=1")
    assert ([line["partition"] for line in found["partitions"]], found["total"]) == (["p2"], 4)
    found = await board(api, "queues/q/partitions?search=P3&group=g")
    assert [line["partition"] for line in found["partitions"]] == ["p3"]
    heat = await board(api, "queues/q/heat?cells=2")
    assert (heat["values"], heat["states"], heat["perCell"]) == ([2, 4], "ra", 2)
    assert heat["names"] == ["p0", "p2"]
    assert (await api.get(f"{BOARD}/queues/q/partitions?group=none")).status == 404
    await api.configure("w", "work")
    assert (await api.get(f"{BOARD}/queues/w/heat")).status == 409
