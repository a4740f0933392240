"""Times and ids that the API writes as text are refused as numbers, as its description says."""

import pytest

from tests.server.application import Api


@pytest.mark.parametrize("body", ['{"to":0}', '{"from":1}', '{"ids":[1]}'])
async def test_a_number_is_no_time_and_no_id(api: Api, body: str) -> None:
    answer = await api.post("/api/v1/dlq/redrive", body.encode())
    assert (answer.status, answer.code) == (400, "invalid_request"), answer


async def test_a_partition_of_a_trace_may_be_a_number(api: Api) -> None:
    body = {"transactionId": "t", "partitionId": 1, "data": {}}
    assert (await api.post("/api/v1/traces", body)).status == 201


async def test_maintenance_refuses_a_malformed_pop_too(api: Api) -> None:
    assert (await api.post("/api/v1/system/maintenance/pop", {"enabled": True})).status == 200
    answer = await api.get("/api/v1/pop/queue/a%05b")
    assert (answer.status, answer.code) == (400, "invalid_request"), answer
    assert await api.pop("q") is None
