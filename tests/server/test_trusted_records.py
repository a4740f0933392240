"""Records that workers, tools and the dashboard act on need the role jobs to write."""

from typing import Any

import pytest

from monarq.operations.operation import Role
from monarq.operations.records import TRUSTED_KINDS
from monarq.pipeline_runs import ARCHIVE_KIND, RUN_KIND, STORE_KIND
from monarq.server.exchange import Principal
from tests.server.application import Answered, Api

FOR_JOBS = {"worker", "worker-stop", "schedule", "job-setting", "history"}
FOR_WRITERS = ["note", "doctor", RUN_KIND, ARCHIVE_KIND, STORE_KIND, "workers", "Worker"]
KNOWN = b'{"known":true}'


async def put(api: Api, kind: str, **more: Any) -> Answered:
    return await api.request("PUT", f"/api/v1/records/{kind}/one", {"value": {}, **more})


async def delete(api: Api, kind: str) -> Answered:
    return await api.request("DELETE", f"/api/v1/records/{kind}/one", None, {})


def test_each_kind_that_is_acted_on_is_among_them() -> None:
    assert TRUSTED_KINDS == FOR_JOBS


@pytest.mark.parametrize("kind", sorted(FOR_JOBS))
async def test_writers_may_not_write_or_delete_them(api: Api, kind: str) -> None:
    await api.broker.store.put_record(kind, "one", KNOWN)
    api.principal = Principal("me", Role.WRITE)
    encoded = kind.replace("o", "%6F")
    for answer in (
        await put(api, kind),
        await put(api, kind, onlyNew=True),
        await put(api, encoded),
        await delete(api, kind),
        await delete(api, encoded),
    ):
        assert answer.status == 403
        assert "needs the role jobs, not write" in answer.error
    assert (await api.get(f"/api/v1/records/{kind}/one")).json["value"] == {"known": True}


@pytest.mark.parametrize("kind", sorted(FOR_JOBS))
@pytest.mark.parametrize("role", [Role.JOBS, Role.ADMIN])
async def test_workers_and_operators_write_and_delete_them(
    memory_api: Api, kind: str, role: Role
) -> None:
    memory_api.principal = Principal("me", role)
    assert (await put(memory_api, kind)).status == 200
    assert (await delete(memory_api, kind)).json == {"deleted": True}


@pytest.mark.parametrize("kind", FOR_WRITERS)
async def test_records_of_other_kinds_are_for_writers(memory_api: Api, kind: str) -> None:
    memory_api.principal = Principal("me", Role.WRITE)
    assert (await put(memory_api, kind)).status == 200
    assert (await delete(memory_api, kind)).json == {"deleted": True}
