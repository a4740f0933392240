"""Extending leases over the API."""

from typing import Any

import pytest

from tests.server.application import Api


async def leased(api: Api, query: str = "leaseTime=10") -> Any:
    await api.push_payloads("q", 1)
    return await api.pop("q", query)


def extend(lease: str) -> str:
    return f"/api/v1/lease/{lease}/extend"


async def test_an_extended_lease_lives_longer(api: Api) -> None:
    lease = (await leased(api))["leaseId"]
    api.clock.advance(9)
    answer = await api.post(extend(lease), {"seconds": 30})
    assert answer.status == 200
    deadline = "2023-11-14T22:13:59.000000Z"
    assert answer.json == {
        "index": 0,
        "leaseId": lease,
        "success": True,
        "error": None,
        "renewed": 1,
        "expiresAt": deadline,
        "newExpiresAt": deadline,
        "lease_expires_at": deadline,
    }
    api.clock.advance(29.9)
    assert await api.pop("q") is None
    api.clock.advance(0.2)
    assert await api.pop_soon("q") is not None


@pytest.mark.parametrize("body", [None, {}, {"seconds": None}])
async def test_without_a_duration_a_lease_is_extended_all_the_same(
    memory_api: Api, body: Any
) -> None:
    """As Queen's clients ask: a POST without a body and without a content type."""
    lease = (await leased(memory_api))["leaseId"]
    answer = await memory_api.post(
        extend(lease), body, {} if body is None else {"content-type": "application/json"}
    )
    assert (answer.status, answer.json["success"]) == (200, True)
    memory_api.clock.advance(60)
    assert await memory_api.pop("q") is None


async def test_a_deadline_never_comes_nearer(api: Api) -> None:
    lease = (await leased(api, "leaseTime=100"))["leaseId"]
    assert (
        (await api.post(extend(lease), {"seconds": 1}))
        .json["expiresAt"]
        .startswith("2023-11-14T22:15:00")
    )


async def test_a_lease_over_several_partitions_is_extended_as_one(api: Api) -> None:
    for name in "ab":
        await api.push_payloads("q", 1, partition=name)
    lease = (await api.pop("q", "batch=9&partitions=2&leaseTime=10"))["leaseId"]
    assert (await api.post(extend(lease), {"seconds": 60})).status == 200
    api.clock.advance(59)
    assert await api.pop("q") is None


async def test_a_lease_that_ran_out_cannot_be_extended(api: Api) -> None:
    lease = (await leased(api))["leaseId"]
    api.clock.advance(10.1)
    answer = await api.post(extend(lease), {"seconds": 60})
    assert answer.status == 409
    assert answer.code in ("lease_expired", "lease_unknown"), "before and after it was settled"
    assert await api.pop_soon("q") is not None


@pytest.mark.parametrize("lease", ["5-0011223344556677", "nonsense", "%20", "a%2Fb"])
async def test_a_lease_that_never_was_cannot_be_extended(memory_api: Api, lease: str) -> None:
    answer = await memory_api.post(extend(lease), {"seconds": 60})
    assert (answer.status, answer.code) == (409, "lease_unknown")


@pytest.mark.parametrize(
    "body", [{"seconds": 0}, {"seconds": -1}, {"seconds": "60"}, {"seconds": 1e9}, {"second": 1}]
)
async def test_a_bad_duration_is_refused(memory_api: Api, body: Any) -> None:
    lease = (await leased(memory_api))["leaseId"]
    answer = await memory_api.post(extend(lease), body)
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert "second" in answer.error
