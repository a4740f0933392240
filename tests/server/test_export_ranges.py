"""Exports of many ranges and of the logs over HTTP: the same rows as in the store, in bounds."""

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from monarq.server.exchange import StreamingResponse
from monarq.tables import TABLES, arrow_schema
from tests.server.application import Api
from tests.server.serving import ServerProcess

JSON = {"content-type": "application/json"}


async def stream(api: Api, method: str, path: str, body: Any = None) -> StreamingResponse:
    content = None if body is None else json.dumps(body).encode()
    handled = api.handle(method, f"/api/v1/export/{path}", content, dict(JSON))
    assert asyncio.iscoroutine(handled)
    answer = await handled
    assert isinstance(answer, StreamingResponse), answer
    return answer


async def table_of(answer: StreamingResponse) -> pa.Table:
    pieces = [bytes(piece) async for piece in answer.chunks]
    table = pa.ipc.open_stream(b"".join(pieces)).read_all()
    table.validate(full=True)
    return table


async def post(api: Api, path: str, body: Any) -> pa.Table:
    return await table_of(await stream(api, "POST", path, body))


async def partitions(api: Api, queue: str, more: str = "") -> dict[str, dict[str, Any]]:
    table = await table_of(await stream(api, "GET", f"partitions?queue={queue}{more}"))
    return {row["partition"]: row for row in table.to_pylist()}


async def test_the_whole_plan_comes_as_one_stream(api: Api) -> None:
    await api.push_payloads("q", 1, 2, partition="a")
    await api.push_payloads("q", 3, partition="b")
    plan = await partitions(api, "q")
    assert {name: (row["first_seq"], row["last_seq"]) for name, row in plan.items()} == {
        "a": (1, 2),
        "b": (1, 1),
    }
    listed = (await api.get("/api/v1/export/plan?queue=q")).json["partitions"]
    assert [str(row["partition_id"]) for row in plan.values()] == [
        row["partitionId"] for row in listed
    ]
    later = await partitions(api, "q", "&createdFrom=2999-01-01T00:00:00Z")
    assert all(row["first_seq"] > row["last_seq"] for row in later.values())


async def test_ranges_of_several_queues_come_in_the_order_asked_for(api: Api) -> None:
    await api.push_payloads("q", *range(10))
    await api.push_payloads("other", *range(100, 105), partition="ü/ 🎉")
    first = (await partitions(api, "q"))["Default"]["partition_id"]
    second = (await partitions(api, "other"))["ü/ 🎉"]["partition_id"]
    table = await post(api, "messages", {"ranges": [[second, 2, 3], [first, 9, 99], [first, 1, 1]]})
    assert table.schema == arrow_schema("messages")
    assert table["payload"].to_pylist() == ["101", "102", "8", "9", "0"]
    assert table["queue"].to_pylist() == ["other", "other", "q", "q", "q"]
    assert table["partition"].to_pylist()[0] == "ü/ 🎉"


async def test_only_the_columns_that_were_asked_for_are_sent(api: Api) -> None:
    await api.push_payloads("q", "x" * 1_000_000)
    partition = (await partitions(api, "q"))["Default"]["partition_id"]
    body = {"ranges": [[partition, 1, 1]], "columns": ["seq", "message_id"]}
    answer = await stream(api, "POST", "messages", body)
    pieces = [bytes(piece) async for piece in answer.chunks]
    assert sum(map(len, pieces)) < 10_000
    assert pa.ipc.open_stream(b"".join(pieces)).read_all().to_pylist() == [
        {"seq": 1, "message_id": f"{partition}-1"}
    ]
    query = f"read?partitionId={partition}&columns=created_at,seq"
    assert (await table_of(await stream(api, "GET", query))).column_names == ["created_at", "seq"]


async def test_no_ranges_are_an_empty_stream_with_its_columns(api: Api) -> None:
    table = await post(api, "messages", {"ranges": [], "columns": ["seq"]})
    assert (table.num_rows, table.column_names) == (0, ["seq"])
    table = await post(api, "messages", {"ranges": [[999_999, 1, 10]]})
    assert table.schema == arrow_schema("messages")


async def test_a_range_without_an_end_is_read_to_the_end_at_once(api: Api) -> None:
    await api.push_payloads("q", 1, 2)
    number = (await partitions(api, "q"))["Default"]["partition_id"]
    endless = 2**53 - 1
    ranges = [[999_999, 1, endless], [number, 2, endless], [999_998, 1, endless]]
    async with asyncio.timeout(20):
        table = await post(api, "messages", {"ranges": ranges, "columns": ["seq"]})
    assert table["seq"].to_pylist() == [2]


@pytest.mark.parametrize("name", [name for name in TABLES if name != "messages"])
async def test_every_other_table_is_read_as_rows_with_its_schema(api: Api, name: str) -> None:
    await api.configure("w", "work")
    await api.push_payloads("q", 1)
    table = await post(api, "rows", {"table": name})
    assert table.schema == arrow_schema(name)
    if name == "queues":
        assert sorted(table["queue"].to_pylist()) == ["q", "w"]
        some = await post(api, "rows", {"table": name, "columns": ["kind"], "queues": ["w"]})
        assert some.to_pylist() == [{"kind": "work"}]


async def test_a_log_is_followed_from_position_to_position(api: Api) -> None:
    position = (await api.get("/api/v1/export/log-end?table=deliveries")).json["position"]
    seen: list[int] = []
    for number in range(3):
        await api.push_payloads("q", number)
        answer = await api.get("/api/v1/pop/queue/q?autoAck=false")
        lease = answer.json["leaseId"]
        await api.post("/api/v1/ack/batch", {"leaseId": lease, "status": "completed"})
        end = (await api.get("/api/v1/export/log-end?table=deliveries")).json["position"]
        body = {"table": "deliveries", "after": position, "until": end, "columns": ["first_seq"]}
        seen += (await post(api, "rows", body))["first_seq"].to_pylist()
        position = end
    assert seen == [1, 2, 3]


async def test_what_is_archived_is_said_and_told(api: Api) -> None:
    await api.push_payloads("q", 1, 2, 3)
    number = str((await partitions(api, "q"))["Default"]["partition_id"])
    said = await api.post("/api/v1/export/archived", {"queue": "q", "positions": {number: 2}})
    assert said.status == 200, said
    told = await api.get("/api/v1/export/archived?queue=q")
    assert told.json == {"queue": "q", "positions": {number: 2}}
    beyond = await api.post("/api/v1/export/archived", {"queue": "q", "positions": {number: 4}})
    assert (beyond.status, beyond.json["code"]) == (400, "invalid_request")
    assert (await api.get("/api/v1/export/archived?queue=q")).json == told.json


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("messages", {"ranges": [[1, 1]]}, 400),
        ("messages", {"ranges": [[1, 1, 0]]}, 400),
        ("messages", {"ranges": [["1", 1, 1]]}, 400),
        ("messages", {"ranges": [[1, 1, 1]], "columns": ["secret"]}, 400),
        ("messages", {"ranges": [[1, 1, 1]], "columns": []}, 400),
        ("messages", {"ranges": [[1, 1, 1]], "columns": ["seq", "seq"]}, 400),
        ("messages", {"range": []}, 400),
        ("rows", {"table": "messages"}, 400),
        ("rows", {"table": "segments"}, 400),
        ("rows", {"table": "items", "after": "0" * 19}, 400),
        ("rows", {"table": "deliveries", "after": "latest"}, 400),
        ("rows", {"table": "deliveries", "columns": ["payload"]}, 400),
        ("archived", {"queue": "q", "positions": {"x": 1}}, 400),
        ("archived", {"queue": "q", "positions": {"1": -1}}, 400),
        ("archived", {"queue": "nowhere", "positions": {"1": 1}}, 404),
    ],
)
async def test_what_is_wrong_is_an_error_and_no_stream(
    api: Api, path: str, body: Any, status: int
) -> None:
    await api.push_payloads("q", 1)
    answer = await api.post(f"/api/v1/export/{path}", body)
    assert answer.status == status, answer
    assert answer.json["error"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("partitions", 400),
        ("partitions?queue=nowhere", 404),
        ("partitions?queue=w", 409),
        ("partitions?queue=q&createdFrom=yesterday", 400),
        ("log-end?table=items", 400),
        ("log-end?table=nothing", 400),
        ("archived?queue=w", 409),
    ],
)
async def test_what_is_wrong_in_a_query_is_an_error(api: Api, path: str, status: int) -> None:
    await api.push_payloads("q", 1)
    await api.configure("w", "work")
    assert (await api.get(f"/api/v1/export/{path}")).status == status


# --- a real server ---------------------------------------------------------------------------


@pytest.fixture
def filled(server: ServerProcess) -> ServerProcess:
    """With 20 MB in two partitions."""
    text = "x" * 10_000
    for number in range(20):
        items = [
            {"queue": "large", "partition": f"p{number % 2}", "payload": text} for _ in range(100)
        ]
        assert server.post("/api/v1/push", {"items": items}).status == 201
    return server


def ranges_of(server: ServerProcess, queue: str) -> list[list[int]]:
    plan = server.get(f"/api/v1/export/plan?queue={queue}").json["partitions"]
    return [[int(row["partitionId"]), row["firstSeq"], row["lastSeq"]] for row in plan]


@contextlib.contextmanager
def asked(server: ServerProcess, body: Any) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("POST", "/api/v1/export/messages", json.dumps(body), JSON)
        yield connection.getresponse()
    finally:
        connection.close()


def test_readers_that_do_not_read_hold_up_neither_others_nor_pushes(
    filled: ServerProcess,
) -> None:
    body = {"ranges": ranges_of(filled, "large")}
    idle = []
    try:
        for _ in range(5):
            connection = http.client.HTTPConnection("127.0.0.1", filled.port, timeout=60)
            idle.append(connection)
            connection.request("POST", "/api/v1/export/messages", json.dumps(body), JSON)
            assert connection.getresponse().status == 200
        with asked(filled, body) as response:
            assert pa.ipc.open_stream(response).read_all().num_rows == 2_000
        pushed = filled.post("/api/v1/push", {"items": [{"queue": "q", "payload": 1}]})
        assert pushed.status == 201
    finally:
        for connection in idle:
            connection.close()


def test_many_readers_at_once_all_get_everything(filled: ServerProcess) -> None:
    body = {"ranges": ranges_of(filled, "large"), "columns": ["seq", "payload"]}
    counts: list[int] = []

    def read() -> None:
        with asked(filled, body) as response:
            counts.append(pa.ipc.open_stream(response).read_all().num_rows)

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [2_000] * 6
