"""Requests as Queen's clients, test suites and command line send them, byte for byte."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from monarq.wire.queen import IGNORED, IGNORED_HEADER, ignored_table
from tests.server.serving import Answer, ServerProcess

HEADER = IGNORED_HEADER.lower()


def push(server: ServerProcess, queue: str, *payloads: Any, **fields: Any) -> Answer:
    items = [{"queue": queue, "payload": payload, **fields} for payload in payloads]
    return server.post("/api/v1/push", {"items": items})


def pop(server: ServerProcess, queue: str, query: str = "") -> list[Any]:
    answer = server.get(f"/api/v1/pop/queue/{queue}?batch=100&autoAck=true&{query}")
    assert answer.status in (200, 204), answer
    return [message["data"] for message in answer.json["messages"]] if answer.body else []


# --- where a group begins --------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["from_beginning", "all", "earliest", "NEW"])
def test_an_unknown_subscription_mode_means_all(
    server: ServerProcess, name: str, mode: str
) -> None:
    push(server, name, "old")
    assert pop(server, name, f"consumerGroup=g&subscriptionMode={mode}") == ["old"]


@pytest.mark.parametrize("mode", ["new", "new-only"])
def test_a_new_group_skips_what_is_there(server: ServerProcess, name: str, mode: str) -> None:
    push(server, name, "old")
    query = f"consumerGroup=g&subscriptionMode={mode}"
    assert pop(server, name, query) == []
    push(server, name, "new")
    assert pop(server, name, query) == ["new"]


# --- times -----------------------------------------------------------------------------------


def days(count: int) -> str:
    return (datetime.now(UTC) + timedelta(days=count)).strftime("%Y-%m-%d")


@pytest.mark.parametrize(
    "form", ["{}", "{}T10:00", "{}T10:00:00", "{} 10:00:00.123", "{}T10:00:00+02:00"]
)
def test_a_date_or_a_time_without_a_zone_is_utc(
    server: ServerProcess, name: str, form: str
) -> None:
    push(server, name, 1)
    start = quote(form.format(days(-2)))
    assert pop(server, name, f"consumerGroup=g&subscriptionFrom={start}") == [1]
    span = f"from={start}&to={quote(form.format(days(2)))}"
    assert len(server.get(f"/api/v1/messages?queue={name}&{span}").json["messages"]) == 1
    assert (
        server.get(f"/api/v1/messages?queue={name}&from={quote(form.format(days(2)))}").json[
            "messages"
        ]
        == []
    )


def test_a_time_without_a_zone_does_not_depend_on_the_brokers_zone(
    server: ServerProcess, name: str
) -> None:
    """Half an hour ago is before the push, and in half an hour is after it, in UTC alone."""
    push(server, name, 1)
    now = datetime.now(UTC).replace(tzinfo=None)
    for minutes, found in ((-30, 1), (30, 0)):
        start = (now + timedelta(minutes=minutes)).isoformat()
        listed = server.get(f"/api/v1/messages?queue={name}&from={start}").json["messages"]
        assert len(listed) == found, start


def test_dead_letters_are_found_by_dates(server: ServerProcess, name: str) -> None:
    server.post("/api/v1/configure", {"queue": name, "options": {"retryLimit": 0}})
    push(server, name, 1)
    popped = server.get(f"/api/v1/pop/queue/{name}").json["messages"][0]
    ack = {key: popped[key] for key in ("transactionId", "partitionId", "leaseId")}
    server.post("/api/v1/ack", ack | {"status": "failed"})
    path = f"/api/v1/dlq?queue={name}&limit=100&offset=0"
    assert server.get(f"{path}&from={days(-1)}&to={days(1)}").json["total"] == 1
    assert server.get(f"{path}&from={days(1)}").json["total"] == 0


def test_groups_are_moved_to_dates(server: ServerProcess, name: str) -> None:
    push(server, name, 1)
    assert pop(server, name, f"consumerGroup={name}") == [1]
    group = f"/api/v1/consumer-groups/{name}"
    for path, body in (
        (f"{group}/queues/{name}/seek", {"timestamp": days(-1)}),
        (f"{group}/subscription", {"subscriptionTimestamp": f"{days(-1)}T00:00:00"}),
    ):
        assert server.post(path, body).status == 200
        assert pop(server, name, f"consumerGroup={name}") == [1]


@pytest.mark.parametrize("time", ["2025-02-30", "2025-1-1", "20250101", "yesterday", "1735689600"])
def test_a_bad_time_is_refused(server: ServerProcess, name: str, time: str) -> None:
    for answer in (
        server.get(f"/api/v1/pop/queue/{name}?consumerGroup=g&subscriptionFrom={time}"),
        server.get(f"/api/v1/dlq?queue={name}&from={time}"),
        server.post(f"/api/v1/consumer-groups/g/queues/{name}/seek", {"timestamp": time}),
    ):
        assert (answer.status, answer.json["code"]) == (400, "invalid_request")
        assert f"not '{time}'" in answer.json["error"]


# --- fields and parameters without a use -----------------------------------------------------


PAIRS = [(call, place) for one in IGNORED for call in one.calls for place in one.places]


def send(server: ServerProcess, queue: str, call: str, place: str) -> Answer:
    """A good request with this field or parameter in it."""
    [pushed] = push(server, queue, 0, namespace=queue).json
    path = call.partition(" ")[2]
    path = path.replace("{queue}", queue).replace("{partition}", "Default")
    if place.startswith("?"):
        others = f"&namespace={queue}" if path == "/api/v1/pop" else ""
        return server.get(f"{path}{place}=true{others}")
    within, _, field = place.rpartition(".")
    items = [{"queue": queue, "payload": {"n": 1}, field: "x"}]
    ids = {"transactionId": pushed["transaction_id"], "partitionId": pushed["partition_id"]}
    bodies = {
        "items[]": {"items": items},
        "operations[].items[]": {"operations": [{"type": "push", "items": items}]},
        "": {**ids, "data": {}, field: "x"},
    }
    return server.post(path, bodies[within])


@pytest.mark.parametrize(("call", "place"), PAIRS)
def test_what_is_ignored_is_named_in_a_header(
    server: ServerProcess, name: str, call: str, place: str
) -> None:
    for _ in range(2):
        answer = send(server, name, call, place)
        assert answer.status in (200, 201, 204), answer
        assert answer.headers[HEADER] == place.rpartition(".")[2].lstrip("?")


def test_all_that_is_ignored_is_named(server: ServerProcess, name: str) -> None:
    push(server, name, 1)
    answer = server.get(f"/api/v1/pop/queue/{name}?frames=true&batch=9&task=t&namespace=&frames=1")
    assert [message["data"] for message in answer.json["messages"]] == [1]
    assert answer.headers[HEADER] == "frames, task, namespace"
    nothing = server.get(f"/api/v1/pop/queue/{name}?frames=true")
    assert (nothing.status, nothing.headers[HEADER]) == (204, "frames")


def test_a_producer_in_a_body_does_not_become_the_messages_producer(
    server: ServerProcess, name: str
) -> None:
    answer = push(server, name, {"n": 1.10}, {"z": [1, 2], "a": "\u00fc"}, producerSub="somebody")
    assert (answer.status, len(answer.json)) == (201, 2)
    messages = server.get(f"/api/v1/pop/queue/{name}?batch=10").json["messages"]
    assert [one["data"] for one in messages] == [{"n": 1.1}, {"z": [1, 2], "a": "\u00fc"}]
    assert [one["producerSub"] for one in messages] == [None, None]


def test_payloads_keep_their_bytes_beside_an_ignored_field(
    server: ServerProcess, name: str
) -> None:
    payload = b'{"b":1.10,  "a":1e2,"b":"\\u00fc", "producerSub": 1}'
    body = b'{"items":[{"producerSub":"x","queue":"%s","payload":%s}]}' % (name.encode(), payload)
    answer = server.request("POST", "/api/v1/push", body)
    assert (answer.status, answer.headers[HEADER]) == (201, "producerSub")
    assert payload in server.get(f"/api/v1/pop/queue/{name}").body


def test_other_unknown_fields_are_refused_also_beside_an_ignored_one(
    server: ServerProcess, name: str
) -> None:
    for fields in (
        {"producerSubject": "x"},
        {"producer_sub": "x"},
        {"producerSub": "x", "prioritty": 1},
        {"prioritty": 1, "producerSub": "x"},
    ):
        answer = push(server, name, 1, **fields)
        assert (answer.status, "there is no field" in answer.json["error"]) == (400, True)
        assert HEADER not in answer.headers
    body = {"items": [{"queue": name, "payload": 1}], "producerSub": "x"}
    assert server.post("/api/v1/push", body).status == 400
    assert server.post("/api/v1/push/columns", {"producerSub": "x"}).status == 400
    assert server.get("/api/v1/status/queues?includePartitions=true").status == 400
    assert server.get(f"/api/v1/status/queues/{name}?includePartition=true").status == 400
    assert pop(server, name) == []


def test_an_ignored_field_is_not_searched_for_in_a_large_body(
    server: ServerProcess, name: str
) -> None:
    """What is searched is held twice."""
    answer = push(server, name, "x" * (3 << 20), producerSub="x")
    assert (answer.status, "producerSub" in answer.json["error"]) == (400, True)


def test_a_request_without_ignored_fields_has_no_header(server: ServerProcess, name: str) -> None:
    assert HEADER not in push(server, name, 1).headers
    assert HEADER not in server.get(f"/api/v1/status/queues/{name}").headers


def test_the_documentation_has_the_table_of_ignored_fields() -> None:
    page = Path(__file__).parent.parent.parent / "docs" / "queen-clients.md"
    assert ignored_table() in page.read_text()


# --- groups that never popped ----------------------------------------------------------------


def test_a_group_that_never_popped_is_moved_and_described(server: ServerProcess, name: str) -> None:
    """As `queenctl cg seek --to now`, `cg describe` and `replay --to beginning` do."""
    push(server, name, 1, 2)
    seek = f"/api/v1/consumer-groups/{name}/queues/{name}/seek"
    unknown = server.get(f"/api/v1/consumer-groups/{name}")
    assert (unknown.status, unknown.json["queues"]) == (200, [])
    assert server.post(seek, {"toEnd": True}).json["success"] is True
    assert pop(server, name, f"consumerGroup={name}") == []
    [described] = server.get(f"/api/v1/consumer-groups/{name}").json["queues"]
    assert (described["queueName"], described["lag"]) == (name, 0)
    assert server.post(seek, {"timestamp": "1970-01-01T00:00:00Z"}).json["lag"] == 2
    assert pop(server, name, f"consumerGroup={name}") == [1, 2]


def test_a_partition_is_moved_to_its_end_by_a_body_without_a_place(
    server: ServerProcess, name: str
) -> None:
    """As the Go client's `SeekConsumerGroupPartition` and `queenctl partition seek` send it."""
    push(server, name, 1, partition="a")
    push(server, name, 2, partition="b")
    group = f"/api/v1/consumer-groups/{name}/queues/{name}"
    assert server.post(f"{group}/partitions/a/seek", {}).json["lag"] == 0
    assert pop(server, name, f"consumerGroup={name}&partitions=10") == [2]
    assert server.post(f"{group}/seek", {}).status == 400


def test_a_seek_in_a_queue_that_does_not_exist_is_refused(server: ServerProcess, name: str) -> None:
    answer = server.post(f"/api/v1/consumer-groups/{name}/queues/{name}/seek", {"toEnd": True})
    assert (answer.status, answer.json["code"]) == (404, "not_found")


# --- shapes that the clients and `queenctl` read ---------------------------------------------


def test_the_options_of_a_queue_are_echoed(server: ServerProcess, name: str) -> None:
    options = {"leaseTime": 60, "retryLimit": 5, "maxSize": 10, "ttl": 7200, "priority": 3}
    answer = server.post("/api/v1/configure", {"queue": name, "options": options}).json
    assert answer["options"].items() >= options.items()
    assert (answer["configured"], answer["queue"], answer["ignored"]) == (True, name, ["ttl"])
    assert answer["queueId"] == server.get(f"/api/v1/resources/queues/{name}").json["id"]
    without = server.post("/api/v1/configure", {"queue": name, "options": {"priority": 4}}).json
    assert "ttl" not in without["options"]


def test_the_status_lists_queues(server: ServerProcess, name: str) -> None:
    server.post(
        "/api/v1/push",
        {"items": [{"queue": name, "payload": 1, "namespace": name, "task": "t"}]},
    )
    pop(server, name)
    for query in (f"queue={name}", f"namespace={name}", f"queue={name}&task=t"):
        status = server.get(f"/api/v1/status?{query}").json
        [row] = status["queues"]
        assert (row["name"], row["namespace"], row["task"]) == (name, name, "t")
        assert (row["pending"], row["completed"], row["failed"], row["dlq"]) == (0, 1, 0, 0)
        assert (status["queueCount"], status["messages"]["completed"]) == (1, 1)
    assert server.get(f"/api/v1/status?queue={name}&task=other").json["queues"] == []
    assert server.get("/api/v1/status?queue=nothing-of-this-name").status == 404
    assert name in {row["name"] for row in server.get("/api/v1/status").json["queues"]}


def test_the_health_names_the_database(server: ServerProcess) -> None:
    assert server.get("/health").json["database"] == "connected"


def test_trace_names_are_listed_by_name(server: ServerProcess, name: str) -> None:
    [pushed] = push(server, name, 1).json
    trace = {
        "transactionId": pushed["transaction_id"],
        "partitionId": pushed["partition_id"],
        "data": {},
        "traceNames": [name],
    }
    assert server.post("/api/v1/traces", trace).status == 201
    listed = server.get(f"/api/v1/traces/names?search={name}").json
    assert listed["names"] == [{"name": name}]
    assert listed["traceNames"] == [{"traceName": name}]


def test_a_message_tells_how_many_groups_consumed_it(server: ServerProcess, name: str) -> None:
    push(server, name, 1)

    def bus() -> Any:
        [message] = server.get(f"/api/v1/messages?queue={name}").json["messages"]
        return message["busStatus"]

    assert bus()["consumedBy"] == 0
    pop(server, name, "consumerGroup=one")
    assert bus() == {"consumedBy": 1, "totalGroups": 1}
    server.get(f"/api/v1/pop/queue/{name}?consumerGroup=two")
    assert bus() == {"consumedBy": 1, "totalGroups": 2}


@pytest.mark.parametrize("span", ["", "?from=2025-01-01T00:00:00Z&to=2099-01-01T00:00:00Z"])
def test_the_analytics_of_queenctl_are_answered(server: ServerProcess, span: str) -> None:
    parked = server.get(f"/api/v1/analytics/queue-parked-replicas{span}").json
    assert [one["workerId"] for one in parked["series"]] == [parked["replicas"][0]["workerId"]]
    assert parked["series"][0]["parkedCount"] >= 0
    retention = server.get(f"/api/v1/analytics/retention{span}").json
    assert retention["totals"] == {"totalMsgs": retention["series"][0]["totalMsgs"]}
    assert retention["timeRange"]["from"] <= retention["timeRange"]["to"]
    for one in ("queue-lag", "queue-ops", "system-metrics", "worker-metrics"):
        short = "?from=2025-01-01T00:00:00Z&to=2025-01-01T01:00:00Z" if span else ""
        assert server.get(f"/api/v1/analytics/{one}{short}").status == 200, one


def test_waiting_pops_are_counted(server: ServerProcess, name: str) -> None:
    path = "/api/v1/analytics/queue-parked-replicas"

    def parked() -> int:
        return int(server.get(path).json["series"][0]["parkedCount"])

    before = parked()
    with server.connect() as waiting:
        waiting.sendall(
            f"GET /api/v1/pop/queue/{name}?wait=true&timeout=20000 HTTP/1.1\r\n"
            f"Host: {server.host}\r\n\r\n".encode()
        )
        deadline = time.monotonic() + 10
        while parked() <= before:
            assert time.monotonic() < deadline
        push(server, name, 1)
        assert waiting.recv(100).startswith(b"HTTP/1.1 200")


# --- more than there may be ------------------------------------------------------------------


def test_more_than_a_pop_may_take_counts_as_the_most(server: ServerProcess, name: str) -> None:
    push(server, name, 1, 2)
    for size in (10_001, 2**53):
        target = f"/api/v1/pop/queue/{name}?consumerGroup={size}&batch={size}&partitions={size}"
        messages = server.get(target).json["messages"]
        assert [message["data"] for message in messages] == [1, 2]
    popped = server.get(f"/api/v1/pop/queue/{name}?consumerGroup=g&autopilot=true&batch=20000")
    assert popped.json["autopilot"]["batch"] == 10_000


def test_more_dead_letters_than_a_page_has_are_the_first_page(
    server: ServerProcess, name: str
) -> None:
    """As `dlq().limit(5000).get()` asks for them."""
    server.post("/api/v1/configure", {"queue": name, "options": {"retryLimit": 0}})
    push(server, name, *range(1_001))
    popped = server.get(f"/api/v1/pop/queue/{name}?batch=2000").json["messages"]
    keys = ("transactionId", "partitionId", "leaseId")
    acks = [{key: one[key] for key in keys} | {"status": "failed"} for one in popped]
    assert server.post("/api/v1/ack/batch", {"acknowledgments": acks}).status == 200
    answer = server.get(f"/api/v1/dlq?queue={name}&limit=5000").json
    assert (len(answer["messages"]), answer["limit"], answer["total"]) == (1_000, 1_000, 1_001)


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        "/api/v1/pop/queue/{}?batch=many",
        "/api/v1/pop/queue/{}?subscriptionFrom=soon",
        "/api/v1/pop/queue/{}?conflation=true",
        "/api/v1/dlq?queue={}&from=soon",
        "/api/v1/dlq?queue={}&limit=0",
    ],
)
def test_a_bad_pop_is_a_400_that_names_the_parameter(
    server: ServerProcess, name: str, target: str
) -> None:
    """Any status of 400 and above makes Queen's clients print the text of `error`. A status below
    it would be taken for an answer, and one of 500 and above would be tried again."""
    answer = server.get(target.format(name))
    assert answer.status == 400
    wrong = target.partition("?")[2].rpartition("&")[2].partition("=")[0]
    assert wrong in answer.json["error"]
