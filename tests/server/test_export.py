"""Export over HTTP: what an ordered queue keeps, as an Arrow IPC stream."""

import asyncio
import http.client
import sys
from typing import Any

import pyarrow as pa
import pytest

from monarq.server.exchange import StreamingResponse
from tests.server.application import Api
from tests.server.serving import ServerProcess


async def stream(api: Api, query: str) -> StreamingResponse:
    handled = api.handle("GET", f"/api/v1/export/read?{query}", None, {})
    assert asyncio.iscoroutine(handled)
    answer = await handled
    assert isinstance(answer, StreamingResponse), answer
    return answer


async def read(api: Api, query: str) -> pa.Table:
    pieces = [piece async for piece in (await stream(api, query)).chunks]
    return pa.ipc.open_stream(b"".join(pieces)).read_all()


async def plan(api: Api, queue: str) -> dict[str, Any]:
    answer = await api.get(f"/api/v1/export/plan?queue={queue}")
    assert answer.status == 200, answer
    return {row["partition"]: row for row in answer.json["partitions"]}


async def test_the_plan_says_what_is_kept_of_each_partition(api: Api) -> None:
    await api.push_payloads("q", 1, 2, partition="a")
    await api.push_payloads("q", 3, partition="b")
    found = await plan(api, "q")
    assert [(row["firstSeq"], row["lastSeq"]) for row in found.values()] == [(1, 2), (1, 1)]
    first = (await api.get("/api/v1/export/plan?queue=q&limit=1")).json
    rest = (await api.get(f"/api/v1/export/plan?queue=q&limit=1&after={first['next']}")).json
    assert [row["partition"] for row in (*first["partitions"], *rest["partitions"])] == ["a", "b"]


async def test_every_message_is_read_as_it_was_pushed(api: Api) -> None:
    for number in range(5):
        await api.push(
            {"queue": "q", "payload": {"n": number, "s": "größe"}, "transactionId": f"t{number}"}
        )
    partition = (await plan(api, "q"))["Default"]["partitionId"]
    table = await read(api, f"partitionId={partition}")
    assert table["seq"].to_pylist() == [1, 2, 3, 4, 5]
    assert table["transaction_id"].to_pylist() == [f"t{number}" for number in range(5)]
    assert table["payload"].to_pylist()[3] == '{"n":3,"s":"gr\\u00f6\\u00dfe"}'
    assert set(table["queue"].to_pylist()) == {"q"}


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ("from=3", [3, 4, 5, 6]),
        ("to=2", [1, 2]),
        ("from=2&to=4", [2, 3, 4]),
        ("from=5&to=99", [5, 6]),
        ("from=7", []),
        ("from=4&to=3", []),
    ],
)
async def test_a_range_is_read_with_both_ends_also_across_segments(
    api: Api, bounds: str, expected: list[int]
) -> None:
    await api.push_payloads("q", 1, 2, 3)
    await api.push_payloads("q", 4, 5, 6)
    partition = (await plan(api, "q"))["Default"]["partitionId"]
    table = await read(api, f"partitionId={partition}&{bounds}")
    assert table["seq"].to_pylist() == expected


async def test_deleted_messages_are_left_out(api: Api) -> None:
    await api.push_payloads("q", 1, 2, 3)
    partition = (await plan(api, "q"))["Default"]["partitionId"]
    await api.request("DELETE", f"/api/v1/messages/{partition}/{partition}-2", None, {})
    table = await read(api, f"partitionId={partition}")
    assert table["seq"].to_pylist() == [1, 3]


async def test_a_large_partition_is_read_in_chunks_as_the_client_takes_them(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monarq.server.routes.export.CHUNK_BYTES", 50_000)
    for number in range(20):
        await api.push_payloads("q", *(f"{number}-{part}" + "x" * 1_000 for part in range(20)))
    partition = (await plan(api, "q"))["Default"]["partitionId"]
    answer = await stream(api, f"partitionId={partition}")
    pieces = [piece async for piece in answer.chunks]
    assert len(pieces) > 5
    assert max(len(piece) for piece in pieces) < 200_000
    table = pa.ipc.open_stream(b"".join(pieces)).read_all()
    assert table["seq"].to_pylist() == list(range(1, 401))


async def test_a_client_that_goes_away_ends_the_reading(api: Api) -> None:
    await api.push_payloads("q", *range(100))
    partition = (await plan(api, "q"))["Default"]["partitionId"]
    answer = await stream(api, f"partitionId={partition}")
    await anext(answer.chunks)
    await answer.chunks.aclose()  # type: ignore[attr-defined]
    assert [piece async for piece in answer.chunks] == []


async def test_what_cannot_be_exported_is_an_error_and_no_stream(api: Api) -> None:
    await api.configure("w", "work")
    await api.push_payloads("w", 1)
    item = (await api.get("/api/v1/items?queue=w")).json["items"][0]
    for path, status in (
        ("plan?queue=w", 409),
        ("plan?queue=x", 404),
        ("plan", 400),
        (f"read?partitionId={item['partitionId']}", 409),
        ("read?partitionId=999999", 404),
        ("read?partitionId=x", 400),
        ("read?partitionId=1&from=0", 400),
        ("read", 400),
    ):
        answer = await api.get(f"/api/v1/export/{path}")
        assert answer.status == status, path


def test_a_real_server_streams_it_to_a_slow_reader(server: ServerProcess) -> None:
    payload = "x" * 10_000
    for _ in range(10):
        items = [{"queue": "q", "payload": payload} for _ in range(100)]
        assert server.post("/api/v1/push", {"items": items}).status == 201
    [row] = server.get("/api/v1/export/plan?queue=q").json["partitions"]
    connection = http.client.HTTPConnection(server.host, server.port, timeout=30)
    connection.request("GET", f"/api/v1/export/read?partitionId={row['partitionId']}")
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.getheader("Content-Type") == "application/vnd.apache.arrow.stream"
    assert answer.getheader("Content-Length") is None
    first = answer.read(1_000)
    # Others are served while this one has not read on.
    assert server.get("/health").status == 200
    table = pa.ipc.open_stream(first + answer.read()).read_all()
    connection.close()
    assert table.num_rows == 1_000
    assert table["seq"].to_pylist() == list(range(1, 1_001))


async def test_a_broker_without_arrow_says_what_to_install(
    memory_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory_api.push_payloads("q", 1)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    answer = await memory_api.get("/api/v1/export/read?partitionId=1&from=1")
    assert (answer.status, answer.json["code"]) == (501, "not_installed")
    assert "monarq[arrow]" in answer.json["error"]
