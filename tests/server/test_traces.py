"""Traces over HTTP."""

from typing import Any
from urllib.parse import quote

import pytest

from tests.server.application import Api


async def note(api: Api, transaction_id: str = "t", **fields: Any) -> Any:
    body = {"transactionId": transaction_id, "partitionId": "1", "data": {"step": 1}, **fields}
    answer = await api.post("/api/v1/traces", body)
    assert answer.status == 201, answer
    return answer.json


async def test_the_traces_of_a_message_are_found_oldest_first(api: Api) -> None:
    for number in range(5):
        await note(api, data=number, eventType=f"e{number}")
    await note(api, "other")
    seen: list[Any] = []
    after = ""
    while True:
        page = (await api.get(f"/api/v1/traces/1/t?limit=2{after}")).json
        seen += [(row["data"], row["eventType"]) for row in page["traces"]]
        if page["next"] is None:
            break
        after = f"&after={quote(page['next'])}"
    assert seen == [(number, f"e{number}") for number in range(5)]
    assert (await api.get("/api/v1/traces/1/nothing")).json["traces"] == []


@pytest.mark.parametrize(
    ("names", "expected"), [(["a", "b"], ["a", "b"]), ("single", ["single"]), (None, []), ([], [])]
)
async def test_names_may_be_a_list_one_text_or_nothing(
    memory_api: Api, names: Any, expected: list[str]
) -> None:
    await note(memory_api, traceNames=names)
    [row] = (await memory_api.get("/api/v1/traces/1/t")).json["traces"]
    assert row["traceNames"] == expected
    assert row["eventType"] == "info"
    listed = (await memory_api.get("/api/v1/traces/names")).json["traceNames"]
    assert [one["traceName"] for one in listed] == expected


async def test_traces_are_found_by_any_name_and_by_time(api: Api) -> None:
    name = "a/b c%"
    await note(api, "t1", traceNames=[name, "x"])
    api.clock.advance(60)
    await note(api, "t2", traceNames=[name])
    path = f"/api/v1/traces/by-name/{quote(name, safe='')}"
    first, second = (await api.get(path)).json["traces"]
    assert (first["transactionId"], second["transactionId"]) == ("t1", "t2")
    late = (await api.get(f"{path}?from={second['createdAt']}")).json["traces"]
    assert late == [second]
    early = (await api.get(f"{path}?to={first['createdAt']}")).json["traces"]
    assert early == [first]
    found = (await api.get("/api/v1/traces/names?search=B%20C")).json["traceNames"]
    assert found == [{"traceName": name}]


async def test_what_queens_clients_send_is_taken(api: Api) -> None:
    """With a number for the partition too, a group, and null for what is not there."""
    await note(api, partitionId=1, consumerGroup="g", traceNames=None, eventType=None)
    [row] = (await api.get("/api/v1/traces/1/t")).json["traces"]
    assert row["partitionId"] == "1"


@pytest.mark.parametrize(
    "change",
    [
        {"partitionId": "x"},
        {"partitionId": 0},
        {"partitionId": None},
        {"transactionId": ""},
        {"transactionId": None},
        {"data": ...},
        {"traceNames": [""]},
        {"traceNames": ["n"] * 101},
        {"eventType": "a\x00"},
        {"trace": "x"},
    ],
)
async def test_a_malformed_trace_is_refused(memory_api: Api, change: dict[str, Any]) -> None:
    body = {"transactionId": "t", "partitionId": "1", "data": 1} | change
    body = {name: value for name, value in body.items() if value is not ...}
    assert (await memory_api.post("/api/v1/traces", body)).status == 400
    assert (await memory_api.get("/api/v1/traces/1/t")).json["traces"] == []
