"""What the dashboard is fed with is what the store holds: figures, lists, attention, charts."""

import asyncio
import json
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from monarq.clock import SECOND
from monarq.model import Latency
from monarq.server.exchange import Principal, Role
from monarq.server.watch.attention import Findings, attention
from monarq.server.watch.history import KIND, History
from monarq.server.watch.overview import overview
from monarq.server.watch.percentiles import of_latencies
from monarq.server.watch.sampler import Sight
from monarq.server.watch.snapshot import Snapshot, View
from monarq.server.watch.topics import watch_overview
from monarq.server.watch.wording import duration, number, plural
from monarq.times import iso
from monarq.wire.dashboard import Attention, OverviewSight
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


# --- the overview ------------------------------------------------------------------------------


async def test_an_empty_broker_has_nothing_that_needs_attention(api: Api) -> None:
    told = await board(api, "overview")
    assert told["attention"] == []
    assert told["health"]["status"] == "healthy"
    assert told["totals"]["queues"] == 0
    assert told["latency"]["p50"] is None


async def test_the_overview_adds_up_what_the_queues_hold(api: Api) -> None:
    await api.configure("jobs", "work")
    await api.push_payloads("orders", 1, 2, 3)
    await api.push_payloads("jobs", 1, 2)
    await api.pop("jobs", "batch=1")
    await consume(api, "orders", "g", 1)
    told = await board(api, "overview")
    totals = told["totals"]
    assert (totals["queues"], totals["groups"], totals["pushed"]) == (2, 1, 5)
    assert (totals["ready"], totals["leased"], totals["pending"]) == (1, 1, 2 + 2)
    assert told["lag"]["messages"] == 2


async def test_the_overview_is_made_once_for_all_who_watch(
    memory_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Sight] = []

    def counted(sight: Sight, *more: Any, **options: Any) -> OverviewSight:
        made.append(sight)
        return overview(sight, *more, **options)

    monkeypatch.setattr("monarq.server.watch.topics.overview", counted)
    service = memory_api.service
    async with asyncio.timeout(20), service.sampler.watching():
        await service.sampler.next_sight(0)
        pages = [watch_overview(service) for _ in range(3)]
        first = [await anext(page) for page in pages]
        assert len(made) == 1
        assert first[0] == first[1] == first[2]
        await memory_api.push_payloads("q", 1)
        await service.sampler.current(anew=True)
        [(_, told), *_] = [await anext(page) for page in pages]
        assert told["totals"].queues == 1
        assert len(made) == len({id(sight) for sight in made})
        for page in pages:
            await page.aclose()  # type: ignore[attr-defined]


async def test_rates_are_what_happened_in_the_last_seconds(api: Api) -> None:
    await api.push_payloads("q", 0)
    await board(api, "overview")
    api.clock.advance(10)
    await api.push_payloads("q", *range(20))
    told = await board(api, "overview")
    assert told["rates"]["in"] == pytest.approx(2.0)
    [line] = (await board(api, "queues"))["queues"]
    assert line["in"] == pytest.approx(2.0)
    for _ in range(3):
        api.clock.advance(10)
        told = await board(api, "overview")
    assert told["rates"]["in"] == 0.0


async def test_a_stuck_group_is_found_with_the_message_that_blocks_it(api: Api) -> None:
    await api.configure("orders", retryDelay=1000, retryLimit=10)
    await api.push_payloads("orders", *range(5), partition="p one")
    for _ in range(3):
        await fail(api, "orders", "billing", "p one", "cannot parse\nstack")
        api.clock.advance(2)
    await board(api, "overview")
    api.service.sampler._findings_at = float("-inf")
    told = await board(api, "overview")
    [line] = (await board(api, "groups"))["groups"]
    # Long before it would be by its age.
    assert (line["state"], line["lag"]) == ("stuck", 5)
    [item] = told["attention"]
    assert (item["kind"], item["severity"], item["page"]) == ("group_stuck", "critical", "group")
    assert (item["queue"], item["group"], item["partition"], item["seq"]) == (
        "orders", "billing", "p one", 1)  # fmt: skip
    assert item["text"] == (
        "Group `billing` is stuck on `orders`: message 1 of partition `p one` has failed 3 times "
        "(cannot parse), and 4 messages wait behind it."
    )
    failing = (await api.get(f"{BOARD}/groups/billing/queues/orders/failing")).json["failing"]
    assert [(row["seq"], row["attempts"], row["behind"], row["data"]) for row in failing] == [
        (1, 3, 4, 0)]  # fmt: skip
    # The button that fixes it.
    path = "/api/v1/consumer-groups/billing/queues/orders/partitions/p%20one/skip"
    done = await api.post(path, {"seq": 1})
    assert (done.status, done.json["lag"]) == (200, 4)
    assert (await api.post(path, {"seq": 1})).status == 409
    assert await consume(api, "orders", "billing") == 4
    api.service.sampler._findings_at = float("-inf")
    [item] = (await board(api, "overview"))["attention"]
    assert item["kind"] == "dead_letters"


async def test_a_group_that_is_behind_is_told_in_plain_words(api: Api) -> None:
    await api.push_payloads("orders", *range(12))
    await consume(api, "orders", "billing", 1)
    api.clock.advance(8 * MINUTE)
    told = await board(api, "overview")
    [item] = told["attention"]
    assert item["text"] == "Group `billing` is 11 messages and 8 minutes behind on `orders`."
    assert item["severity"] == "critical"
    assert told["lag"] == {"messages": 11, "seconds": 480.0, "groupsBehind": 1}


async def test_what_is_full_paused_dead_or_left_alone_needs_attention(api: Api) -> None:
    await api.configure("full", maxSize=10)
    await api.push_payloads("full", *range(10))
    await api.configure("paused")
    await api.push_payloads("paused", 1)
    await api.post("/api/v1/resources/queues/paused/pause")
    await api.push_payloads("alone", *range(100))
    await api.configure("jobs", "work", maxAttempts=1)
    await api.push_payloads("jobs", 1, 2)
    popped = await api.pop("jobs", "batch=1")
    await api.post("/api/v1/ack/batch", {"leaseId": popped["leaseId"], "status": "failed"})
    api.clock.advance(2 * MINUTE)
    told = await board(api, "overview")
    kinds = {item["kind"]: item for item in told["attention"]}
    assert set(kinds) == {
        "queue_full", "queue_paused", "nobody_consumes", "dead_letters", "no_worker"}  # fmt: skip
    assert kinds["queue_full"]["severity"] == "critical"
    assert kinds["dead_letters"]["text"] == "`jobs` has 1 dead letter."
    assert kinds["no_worker"]["queue"] == "jobs"
    severities = [item["severity"] for item in told["attention"]]
    assert severities == sorted(severities, key=["critical", "warning", "notice"].index)


async def test_of_very_many_in_trouble_only_the_worst_are_put_into_words(
    memory_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory_api.push_payloads("q", 1)
    view = (await memory_api.service.sampler.current(anew=True)).view
    [flow] = view.now.queues.values()
    queues = {
        f"q{n}": msgspec.structs.replace(flow, queue=f"q{n}", pushed=n, paused=True)
        for n in range(1, 1001)
    }
    queues["full"] = msgspec.structs.replace(flow, queue="full", pushed=5, max_size=5)
    made: list[str] = []

    def counted(**fields: Any) -> Attention:
        made.append(fields["id"])
        return Attention(**fields)

    monkeypatch.setattr("monarq.server.watch.attention.Attention", counted)
    now = View(Snapshot(view.now.at, queues, {}))
    told = attention(now, memory_api.broker.health(), Findings())
    worst = ["queue_full:full", *(f"queue_paused:q{n}" for n in range(1000, 951, -1))]
    assert [one.id for one in told] == worst
    assert sorted(made) == sorted(worst)


async def test_a_worker_that_says_nothing_is_lost(api: Api) -> None:
    worker = {
        "id": "w1", "host": "h", "process": {"pid": 7, "started": 1}, "queues": ["jobs"],
        "concurrency": 2, "state": "running", "startedAt": "2026-01-01T00:00:00Z",
        "heartbeatAt": "2026-01-01T00:00:00Z", "completed": 3, "failed": 1,
        "running": [{"id": "1-1", "job": "j", "queue": "jobs", "attempt": 1,
                     "startedAt": "2026-01-01T00:00:00Z", "what": "echo"}],
    }  # fmt: skip
    store = api.broker.store
    await store.put_record("worker", "w1", json.dumps(worker).encode())
    await store.put_record("worker", "broken", b'"what"')
    await store.put_record(
        "schedule", "nightly",
        b'{"expression":"0 3 * * *","zone":"UTC","nextTick":"2026-01-02T03:00:00Z"}',
    )  # fmt: skip
    told = (await api.get(f"{BOARD}/workers")).json
    [line] = told["workers"]
    assert (line["state"], line["pid"], line["running"][0]["what"]) == ("running", 7, "echo")
    assert [one["name"] for one in told["schedules"]] == ["nightly"]
    overview = await board(api, "overview")
    assert overview["workers"] == {"running": 1, "lost": 0, "stopped": 0, "jobs": 1}
    api.clock.advance(30)
    api.service.sampler._findings_at = float("-inf")
    overview = await board(api, "overview")
    assert [item["kind"] for item in overview["attention"]] == ["worker_lost"]
    assert (await api.post(f"{BOARD}/workers/w1/stop")).json == {"stopping": True}
    assert (await store.get_record("worker-stop", "w1")).value == b"{}"
    assert (await api.post(f"{BOARD}/workers/none/stop")).status == 404


@pytest.mark.parametrize(("role", "status"), [(Role.WRITE, 403), (Role.JOBS, 200)])
async def test_a_worker_is_not_stopped_by_a_record_of_who_may_not_stop_it(
    api: Api, role: Role, status: int
) -> None:
    api.principal = Principal("me", role)
    body = {"value": {}}
    assert (await api.request("PUT", "/api/v1/records/worker-stop/w1", body)).status == status
    assert (await api.request("PUT", "/api/v1/records/worker/w1", body)).status == 200


async def test_a_failed_pipeline_needs_attention_until_it_succeeds(api: Api) -> None:
    store = api.broker.store
    run = {"id": "1", "pipeline": "archive", "outcome": "failed", "error": "no lake"}
    await store.put_record("pipeline-run", "1", json.dumps(run).encode())
    [item] = (await board(api, "overview"))["attention"]
    assert item["text"] == "The last run of the pipeline `archive` failed: no lake."
    await store.put_record("pipeline-run", "2", json.dumps(run | {"outcome": "succeeded"}).encode())
    api.service.sampler._findings_at = float("-inf")
    assert (await board(api, "overview"))["attention"] == []


# --- lists -------------------------------------------------------------------------------------


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


# --- messages ----------------------------------------------------------------------------------


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
    monkeypatch.setattr("monarq.server.paging.MAX_BYTES", 40_000)
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


# --- over time -----------------------------------------------------------------------------------


async def test_minutes_that_were_noted_become_a_chart(api: Api) -> None:
    history = History(lambda: api.broker.store, api.clock)
    api.clock.advance(MINUTE - api.clock.now() / SECOND % MINUTE)
    assert await history.note()
    for count in (60, 120, 0, 240):
        if count:
            await api.push_payloads("q", *range(count))
            await consume(api, "q", "g", 100)
        api.clock.advance(MINUTE)
        await history.note()
    for name, step in (("15m", 60), ("1h", 60), ("6h", 120)):
        told = await board(api, f"series?range={name}")
        assert told["stepSeconds"] == step
        lengths = {len(told[key]) for key in ("times", "in", "out", "pending", "p50", "lagSeconds")}
        assert len(lengths) == 1
        known = [(at, rate) for at, rate in zip(told["times"], told["in"], strict=True)
                 if rate is not None]  # fmt: skip
        assert sum(rate for _, rate in known) * step == pytest.approx(420, rel=0.02)
    told = await board(api, "series?range=15m")
    assert [rate for rate in told["in"] if rate is not None][:5] == [0.0, 1.0, 2.0, 0.0, 4.0]
    assert told["in"][0] is None
    assert any(value is not None for value in told["p99"])


async def test_a_minute_is_noted_once_whoever_notes_it_and_an_idle_one_not_at_all(
    api: Api,
) -> None:
    one = History(lambda: api.broker.store, api.clock)
    two = History(lambda: api.broker.store, api.clock)
    api.clock.advance(3600 - api.clock.now() / SECOND % 3600 + MINUTE)
    assert await one.note()
    assert not await two.note()
    assert not await one.note()
    api.clock.advance(MINUTE)
    assert not await one.note()
    await api.push_payloads("q", 1)
    api.clock.advance(MINUTE)
    assert await one.note()
    assert not await two.note()
    [record] = (await api.broker.store.list_records(KIND)).rows
    assert sorted(json.loads(record.value)["slots"], key=int) == ["0", "2"]


async def test_a_record_that_is_no_hour_spoils_no_chart(memory_api: Api) -> None:
    api = memory_api
    api.clock.advance(MINUTE - api.clock.now() / SECOND % MINUTE)
    day = iso(api.clock.now())[:10]
    for key, value in ((f"{day}-what", b"{}"), (day, b"{}"), (f"{day}T00", b"[]")):
        await api.broker.store.put_record(KIND, key, value)
    assert await History(lambda: api.broker.store, api.clock).note()
    assert any(rate is not None for rate in (await board(api, "series?range=15m"))["pending"])
    assert await board(api, "system")


async def test_a_queue_has_a_chart_of_its_own(api: Api) -> None:
    await api.push_payloads("q", *range(30))
    await api.push_payloads("other", *range(99))
    await api.broker.store.lifecycle()
    api.clock.advance(2 * MINUTE)
    await api.push_payloads("q", *range(60))
    await consume(api, "q", "g", 100)
    told = await board(api, "series?range=15m&queue=q")
    pushed = sum(rate for rate in told["in"] if rate is not None) * 60
    assert pushed >= 60
    assert pushed <= 90 * 60  # the last step is not over, so what is in it counts for more
    assert told["pending"][-1] == 0
    assert told["p50"][-1] is not None
    assert (await api.get(f"{BOARD}/series?queue=none")).status == 404
    assert (await api.get(f"{BOARD}/series?range=1y")).status == 400


def test_percentiles_count_every_message() -> None:
    assert of_latencies([]) is None
    one = [Latency(at=0, microseconds=n * SECOND, messages=1) for n in range(1, 101)]
    assert of_latencies(one) == (50.0, 95.0, 99.0)
    heavy = [*one, Latency(at=0, microseconds=500 * SECOND, messages=900)]
    assert of_latencies(heavy) == (500.0, 500.0, 500.0)


def test_numbers_read_as_people_write_them() -> None:
    assert (number(12_400), number(0.25), number(3)) == ("12,400", "0.2", "3")
    assert (plural(1, "push", "pushes"), plural(2, "push", "pushes")) == ("1 push", "2 pushes")
    told = [duration(seconds) for seconds in (1, 59, 60, 480, 7200, 200_000)]
    assert told == ["1 second", "59 seconds", "1 minute", "8 minutes", "2 hours", "2 days"]


# --- the system ----------------------------------------------------------------------------------


async def test_the_system_tells_how_the_store_and_the_process_fare(api: Api) -> None:
    await api.push_payloads("q", 1)
    told = (await api.get(f"{BOARD}/system")).json
    assert told["store"]["figures"]["databaseBytes"] > 0
    assert {line["call"] for line in told["calls"]} == {
        "push", "pop", "ack", "renew", "transaction"}  # fmt: skip
    push = next(line for line in told["calls"] if line["call"] == "push")
    assert (push["calls"], push["p50"] is not None) == (1, True)
    api.service.slow.note(None, 200, 2.5)
    told = (await api.get(f"{BOARD}/system")).json
    assert [(line["what"], line["seconds"]) for line in told["slow"]] == [("no route", 2.5)]


async def test_settings_are_shown_without_a_secret(memory_api: Api) -> None:
    object.__setattr__(
        memory_api.service,
        "settings",
        type(memory_api.service.settings)(
            store="postgresql://ann:hush@db/x",
            jwt_secret="hush hush hush hush hush hush hush",
            peer_key="hush",
        ),
    )
    answer = await memory_api.get(f"{BOARD}/settings")
    assert b"hush" not in answer.body
    rows = {row["name"]: row for row in answer.json["settings"]}
    assert rows["jwt_secret"]["value"] == "set"
    assert rows["encryption_keys"]["value"] == ""
    assert rows["store"]["value"] == "postgresql://ann:***@db/x"
    assert rows["port"]["isDefault"] is True


async def test_the_store_is_looked_at_once_for_all_who_ask_at_the_same_time(api: Api) -> None:
    await asyncio.gather(*(api.get(f"{BOARD}/overview") for _ in range(20)))
    assert api.service.sampler.sight.view.version <= 2


async def test_what_is_pushed_while_nobody_looks_is_there_when_somebody_does(api: Api) -> None:
    for name in ("one", "two"):
        await api.push_payloads(name, 1)
        assert (await board(api, f"queues/{name}"))["line"]["pending"] == 1
