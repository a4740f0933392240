"""What the dashboard's overview tells is what the store holds, and what needs attention."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from monarq.server.snapshot import Snapshot
from monarq.server.watch.attention import Findings, attention
from monarq.server.watch.overview import overview
from monarq.server.watch.sampler import Sight
from monarq.server.watch.topics import watch_overview
from monarq.server.watch.views import View
from monarq.wire.dashboard import Attention, OverviewSight
from tests.server.application import Api
from tests.server.board import BOARD, MINUTE, board, consume, fail


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
        f"q{n}": msgspec.structs.replace(flow, queue=f"q{n}", pushed=n, pending=n, paused=True)
        for n in range(1, 1001)
    }
    queues["full"] = msgspec.structs.replace(flow, queue="full", pushed=5, pending=5, max_size=5)
    made: list[str] = []

    def counted(**fields: Any) -> Attention:
        made.append(fields["id"])
        return Attention(**fields)

    monkeypatch.setattr("monarq.server.watch.attention.Attention", counted)
    now = View(Snapshot(view.now.at, queues, {}, view.now.at))
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


async def test_a_failed_pipeline_needs_attention_until_it_succeeds(api: Api) -> None:
    store = api.broker.store
    run = {"id": "1", "pipeline": "archive", "outcome": "failed", "error": "no lake"}
    await store.put_record("pipeline-run", "1", json.dumps(run).encode())
    [item] = (await board(api, "overview"))["attention"]
    assert item["text"] == "The last run of the pipeline `archive` failed: no lake."
    await store.put_record("pipeline-run", "2", json.dumps(run | {"outcome": "succeeded"}).encode())
    api.service.sampler._findings_at = float("-inf")
    assert (await board(api, "overview"))["attention"] == []
