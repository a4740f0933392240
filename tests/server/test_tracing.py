"""Spans: the caller's trace goes on, and nothing is imported or sent when it is off."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from monarq.server.routes import ROUTES
from monarq.server.routing import Route
from monarq.server.tracing import Spans
from tests.server.conftest import StartServer
from tests.server.plain_server import Handler, answering

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def route(path: str, method: str = "GET") -> Route:
    return next(each for each in ROUTES if each.path == path and each.method == method)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Spans:
    return Spans("1", exporter=exporter)


def finished(spans: Spans, exporter: InMemorySpanExporter) -> tuple[Any, ...]:
    spans._provider.force_flush()
    found = exporter.get_finished_spans()
    spans.close()
    return found


def test_a_span_has_the_callers_as_parent_and_its_own_time(
    spans: Spans, exporter: InMemorySpanExporter
) -> None:
    spans.record(route("/api/v1/push", "POST"), {"traceparent": PARENT}, 201, 0.25)
    [span] = finished(spans, exporter)
    assert span.name == "POST /api/v1/push"
    assert f"{span.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{span.parent.span_id:016x}" == PARENT.split("-")[2]
    assert (span.end_time - span.start_time) / 1e9 == pytest.approx(0.25)
    assert span.kind.name == "SERVER"
    assert span.attributes["messaging.operation.type"] == "send"
    assert span.attributes["http.response.status_code"] == 201


@pytest.mark.parametrize(
    "parent", [None, "", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"]
)
def test_without_a_good_parent_a_trace_begins(
    parent: str | None, spans: Spans, exporter: InMemorySpanExporter
) -> None:
    headers = {} if parent is None else {"traceparent": parent}
    spans.record(route("/api/v1/pop/queue/{queue}"), headers, 204, 0.1)
    [span] = finished(spans, exporter)
    assert span.parent is None
    assert span.attributes["messaging.operation.type"] == "receive"


def test_a_parent_that_is_not_sampled_is_respected(
    spans: Spans, exporter: InMemorySpanExporter
) -> None:
    spans.record(route("/api/v1/ack", "POST"), {"traceparent": PARENT[:-1] + "0"}, 200, 0.1)
    assert finished(spans, exporter) == ()


def test_errors_of_ours_are_marked_and_looking_at_the_server_is_not_traced(
    spans: Spans, exporter: InMemorySpanExporter
) -> None:
    spans.record(route("/api/v1/ack", "POST"), {}, 503, 0.1)
    spans.record(route("/api/v1/ack", "POST"), {}, 409, 0.1)
    spans.record(route("/metrics"), {}, 200, 0.1)
    spans.record(route("/health"), {}, 200, 0.1)
    found = finished(spans, exporter)
    assert [span.status.status_code.name for span in found] == ["ERROR", "UNSET"]


def test_nothing_is_imported_when_it_is_off() -> None:
    code = (
        "import sys, monarq.server.tracing, monarq.server.observing, monarq.server.app\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Collector:
    """Takes what is sent to it."""

    def __init__(self) -> None:
        self.url = ""
        self.received: list[bytes] = []
        self.arrived = threading.Event()


@pytest.fixture
def collector() -> Iterator[Collector]:
    state = Collector()

    class Taking(Handler):
        def answer(self) -> None:
            state.received.append(self.rfile.read(int(self.headers["Content-Length"])))
            state.arrived.set()
            self.send_response(200)
            self.end_headers()

    with answering(Taking) as url:
        state.url = url
        yield state


@pytest.mark.parametrize("served_store", ["sqlite"], indirect=True)
def test_a_server_sends_its_spans_and_carries_the_trace_from_push_to_pop(
    start_server: StartServer, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    server = start_server(tracing=True)
    item = {"queue": "q", "payload": 1}
    pushed = server.post("/api/v1/push", {"items": [item]}, headers={"traceparent": PARENT})
    assert pushed.status == 201
    popped = server.get("/api/v1/pop/queue/q")
    assert PARENT in json.dumps(popped.json)
    server.stop()  # sends what is left
    assert collector.arrived.wait(10)
    sent = b"".join(collector.received)
    assert b"POST /api/v1/push" in sent
    assert bytes.fromhex(PARENT.split("-")[1]) in sent
