"""What the metrics say is what happened; scraping them costs the store next to nothing."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from monarq.broker.broker import Broker
from monarq.clock import SystemClock
from monarq.config import Settings
from monarq.model import Pop, Push, PushItem
from monarq.server.metric_families import (
    Family,
    Sample,
    added_up,
    as_json,
    as_text,
    counter,
    gauge,
    histogram,
)
from monarq.server.metrics import Metrics
from monarq.server.request_metrics import RequestMetrics
from monarq.server.snapshot import Snapshots
from monarq.server.worker_metrics import WorkerMetrics
from monarq.store import open_store
from tests.server.conftest import StartServer
from tests.server.samples import values
from tests.server.serving import ServerProcess


def scraped(server: ServerProcess) -> dict[str, float]:
    answer = server.get("/metrics/prometheus")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return values(answer.body.decode())


# --- a real server ---


def test_what_was_done_is_what_is_told(server: ServerProcess) -> None:
    for number in range(3):
        items = [{"queue": "orders", "partition": f"p{number}", "payload": number}] * 2
        assert server.post("/api/v1/push", {"items": items}).status == 201
    assert server.get("/api/v1/pop/queue/orders?batch=2&consumerGroup=g").status == 200
    assert server.get("/api/v1/pop/queue/nothing").status == 204
    assert server.get("/nowhere").status == 404
    found = scraped(server)
    assert found["monarq_calls_total{call=push}"] == 3
    assert found["monarq_call_messages_total{call=push}"] == 6
    assert found["monarq_queue_pending{kind=ordered,queue=orders}"] == 6
    assert found["monarq_queue_pushed_total{kind=ordered,queue=orders}"] == 6
    assert found["monarq_queue_partitions{kind=ordered,queue=orders}"] == 3
    assert found["monarq_group_lag{group=g,queue=orders}"] == 6
    assert found["monarq_group_oldest_unacked_seconds{group=g,queue=orders}"] > 0
    assert found["monarq_http_requests_total{method=POST,route=/api/v1/push,status=201}"] == 3
    route = "/api/v1/pop/queue/{queue}"
    assert found[f"monarq_http_requests_total{{method=GET,route={route},status=200}}"] == 1
    assert found[f"monarq_http_requests_total{{method=GET,route={route},status=204}}"] == 1
    assert found["monarq_http_requests_total{method=,route=unmatched,status=404}"] == 1
    seconds = "monarq_http_request_seconds"
    assert found[f"{seconds}_count{{method=POST,route=/api/v1/push}}"] == 3
    assert found[f"{seconds}_bucket{{le=+Inf,method=POST,route=/api/v1/push}}"] == 3
    assert found["monarq_store_seconds_count{call=push}"] >= 1
    assert found["monarq_state{state=serving}"] == 1
    assert found["monarq_store_up{}"] == 1
    assert found["monarq_buffer_bytes{}"] == 0
    assert found["monarq_process_memory_bytes{}"] > 1e6
    assert found["monarq_store_bytes{}"] > 0


def test_a_work_queue_tells_its_states_and_how_long_the_next_item_waits(
    server: ServerProcess,
) -> None:
    assert server.post("/api/v1/configure", {"queue": "jobs", "kind": "work"}).status == 200
    items = [
        {"queue": "jobs", "payload": 1},
        {"queue": "jobs", "payload": 2},
        {"queue": "jobs", "payload": 3, "delaySeconds": 3600},
    ]
    assert server.post("/api/v1/push", {"items": items}).status == 201
    assert server.get("/api/v1/pop/queue/jobs").status == 200
    found = scraped(server)
    assert found["monarq_queue_items{queue=jobs,state=ready}"] == 1
    assert found["monarq_queue_items{queue=jobs,state=leased}"] == 1
    assert found["monarq_queue_items{queue=jobs,state=scheduled}"] == 1
    assert found["monarq_queue_pending{kind=work,queue=jobs}"] == 3
    assert 0 < found["monarq_queue_next_item_age_seconds{queue=jobs}"] < 600


@pytest.mark.parametrize("served_store", ["postgres-newest"], indirect=True)
def test_postgresql_tells_dead_rows_and_what_holds_them(server: ServerProcess) -> None:
    found = scraped(server)
    assert any(name.startswith("monarq_postgres_dead_tuples{table=") for name in found)
    assert found["monarq_postgres_oldest_xmin_age{}"] >= 0
    assert found["monarq_postgres_connections{}"] >= 1


@pytest.mark.parametrize("served_store", ["sqlite"], indirect=True)
def test_json_and_text_say_the_same(server: ServerProcess) -> None:
    server.post("/api/v1/push", {"items": [{"queue": "a", "payload": 1}]})
    told = server.get("/metrics").json
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", told["timestamp"])
    metrics = told["metrics"]
    assert {"call": "push", "value": 1.0} in metrics["monarq_calls"]
    assert metrics["monarq_store_up"] == 1
    [pushes] = [row for row in metrics["monarq_store_seconds"] if row["call"] == "push"]
    assert pushes["count"] == 1
    assert pushes["p50"] is not None


@pytest.mark.parametrize("served_store", ["postgres-newest"], indirect=True)
@pytest.mark.slow
def test_any_worker_tells_of_all(start_server: StartServer) -> None:
    server = start_server(workers=3)
    for _ in range(60):
        # A new connection each, so that the processes share them.
        assert server.post("/api/v1/push", {"items": [{"queue": "a", "payload": 1}]}).status == 201
    for _ in range(5):
        found = scraped(server)
        assert found["monarq_processes{}"] == 3
        assert found["monarq_calls_total{call=push}"] == 60
        assert found["monarq_queue_pushed_total{kind=ordered,queue=a}"] <= 60


PAGE = Path(__file__).parent.parent.parent / "docs" / "operations" / "monitoring.md"


def test_the_page_lists_every_metric_of_a_server(server: ServerProcess) -> None:
    server.post("/api/v1/push", {"items": [{"queue": "a", "payload": 1}]})
    listed = set(re.findall(r"^\| `(monarq_\w+)`", PAGE.read_text(), re.MULTILINE))
    told = {
        re.sub(r"_(bucket|sum|count|created)$", "", name.partition("{")[0])
        for name in scraped(server)
    }
    assert told <= listed, f"docs/operations/monitoring.md lacks {sorted(told - listed)}"


def metrics_of(broker: Broker) -> Metrics:
    return Metrics(broker, Settings(), Snapshots(lambda: broker.store, SystemClock()))


async def test_the_page_lists_nothing_that_does_not_exist(broker: Broker) -> None:
    listed = set(re.findall(r"^\| `(monarq_\w+)`", PAGE.read_text(), re.MULTILINE))
    families = await metrics_of(broker).families()
    told = {each.name + ("_total" if each.kind == "counter" else "") for each in families}
    elsewhere = {"monarq_peer_notices_total", "monarq_workers_unreachable_total"}
    elsewhere |= {name for name in listed if name.startswith("monarq_postgres_")}
    assert listed - told == elsewhere


# --- families ---


class Measured:
    def __init__(self, counts: list[int], total: float) -> None:
        self.bounds = (1.0, 10.0)
        self.counts = counts
        self.sum = total


def test_families_of_processes_add_up_by_labels() -> None:
    one = [
        counter("c", "c", [(("a",), 1.0), (("b",), 2.0)], ("x",)),
        histogram("h", "h", [((), Measured([1, 2, 3], 9.0))]),
        Family("up", "largest", "u", samples=[Sample((), 5.0)]),
    ]
    two = [
        counter("c", "c", [(("b",), 10.0), (("c",), 20.0)], ("x",)),
        histogram("h", "h", [((), Measured([10, 0, 1], 90.0))]),
        Family("up", "largest", "u", samples=[Sample((), 3.0)]),
        gauge("only", "o", [((), 7.0)]),
    ]
    found = values(as_text(added_up([one, two])).decode())
    assert found == {
        "c_total{x=a}": 1,
        "c_total{x=b}": 12,
        "c_total{x=c}": 20,
        "h_bucket{le=1.0}": 11,
        "h_bucket{le=10.0}": 13,
        "h_bucket{le=+Inf}": 17,
        "h_count{}": 17,
        "h_sum{}": 99,
        "up{}": 5,
        "only{}": 7,
    }
    assert one[0].samples[1].value == 2.0  # what was added up is left as it was


def test_names_that_a_caller_chose_cannot_break_the_text() -> None:
    evil = 'a"} 1\nfake_metric{x="\\'
    families = [gauge("monarq_queue_pending", "p", [((evil,), 1.0)], ("queue",))]
    [family] = text_string_to_metric_families(as_text(families).decode())
    assert [sample.labels for sample in family.samples] == [{"queue": evil}]
    json.dumps(as_json(families, 0))


def test_requests_are_counted_by_route_and_status() -> None:
    requests = RequestMetrics()
    for seconds in (0.0004, 0.0005, 0.02, 99.0):
        requests.observe(None, 404, seconds)
    found = values(as_text(requests.families()).decode())
    labels = "method=,route=unmatched"
    assert found[f"monarq_http_requests_total{{{labels},status=404}}"] == 4
    assert found[f"monarq_http_request_seconds_bucket{{le=0.0005,{labels}}}"] == 2
    assert found[f"monarq_http_request_seconds_bucket{{le=0.025,{labels}}}"] == 3
    assert found[f"monarq_http_request_seconds_bucket{{le=+Inf,{labels}}}"] == 4


# --- processes that share a port ---


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    broker = await Broker.start(lambda: open_store("memory:"), Settings(), buffer_dir=tmp_path)
    yield broker
    await broker.close(1)


async def test_metrics_of_one_process_come_from_its_broker(broker: Broker) -> None:
    await broker.push(Push([PushItem("a", b"1"), PushItem("a", b"2")]))
    await broker.pop(Pop(queue="a"))
    waiting = asyncio.ensure_future(broker.submit_pop(Pop(queue="b"), 30))
    await asyncio.sleep(0)
    metrics = metrics_of(broker)
    while True:
        found = values(as_text(await metrics.families()).decode())
        if found["monarq_pops_parked{}"]:
            break
    assert found["monarq_call_messages_total{call=push}"] == 2
    assert found["monarq_pop_steps_total{step=delivered}"] == 1
    waiting.cancel()


async def test_a_worker_that_does_not_answer_is_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from monarq.server import worker_metrics

    monkeypatch.setattr(worker_metrics, "TIMEOUT_SECONDS", 1.0)
    workers = [WorkerMetrics(tmp_path, number) for number in range(3)]
    for number, worker in enumerate(workers):
        await worker.start(lambda number=number: [gauge("n", "n", [((), float(number))])])  # type: ignore[misc]
    told = await workers[0].of_others()
    assert [families[0].samples[0].value for families in told] == [1.0, 2.0]

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    stuck = await asyncio.start_unix_server(silent, path=tmp_path / "metrics-9.sock")
    (tmp_path / "metrics-8.sock").touch()
    told = await workers[0].of_others()
    assert len(told) == 2
    assert workers[0].unreachable == 2
    # One that was killed and started again takes its place over.
    again = WorkerMetrics(tmp_path, 1)
    await again.start(lambda: [gauge("n", "n", [((), 7.0)])])
    assert len(await workers[0].of_others()) == 2
    stuck.close()
    for worker in (*workers, again):
        await worker.close()
