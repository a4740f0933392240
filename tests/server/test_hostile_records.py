"""Records that hold anything: the dashboard shows the others."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from monarq.clock import SECOND
from monarq.operations.records import HISTORY_KIND, SCHEDULE_KIND, WORKER_KIND
from monarq.pipeline_runs import ARCHIVE_KIND, RUN_KIND
from tests.server.application import Api

NOW = "2026-03-01T12:00:00Z"
WORKER: dict[str, Any] = {
    "id": "good",
    "state": "running",
    "heartbeatAt": NOW,
    "startedAt": NOW,
    "running": [
        {"id": "1", "job": "j", "queue": "q", "attempt": 1, "startedAt": NOW, "what": "true"}
    ],
}
SCHEDULE: dict[str, Any] = {"expression": "* * * * *", "zone": "UTC", "nextTick": NOW}
RUN: dict[str, Any] = {
    "id": "good",
    "pipeline": "archive",
    "started": 1,
    "updated": 1,
    "outcome": "failed",
}
SLOT = [1, 2, 3, 4, 5, 0.5, None, 6]
HUGE = 10**18

BAD: list[tuple[str, Any]] = [
    *((kind, value) for kind in (WORKER_KIND, SCHEDULE_KIND, RUN_KIND) for value in (1, [], {})),
    (WORKER_KIND, WORKER),
    (WORKER_KIND, WORKER | {"id": "bad", "heartbeatAt": "soon"}),
    (WORKER_KIND, WORKER | {"id": "bad", "startedAt": "2026-03-01T12:00:00"}),
    (WORKER_KIND, WORKER | {"id": "bad", "running": [WORKER["running"][0] | {"startedAt": "x"}]}),
    (SCHEDULE_KIND, SCHEDULE | {"nextTick": "never"}),
    (SCHEDULE_KIND, SCHEDULE | {"lastTick": "2026-03-01"}),
    (RUN_KIND, RUN | {"started": HUGE}),
    (RUN_KIND, RUN | {"updated": -1}),
    (RUN_KIND, RUN | {"ended": HUGE}),
    (ARCHIVE_KIND, {"lake": "l", "at": HUGE, "queues": []}),
    ("pipeline-analysis", {"id": "bad", "generatedAt": HUGE}),
    (HISTORY_KIND, {"slots": {str(HUGE): SLOT}}),
    (HISTORY_KIND, {"slots": {"0": "evil"}}),
]


@pytest.mark.parametrize(
    ("kind", "value"), BAD, ids=[f"{kind}-{number}" for number, (kind, _) in enumerate(BAD)]
)
async def test_a_malformed_record_is_logged_and_the_others_are_shown(
    memory_api: Api, caplog: pytest.LogCaptureFixture, kind: str, value: Any
) -> None:
    async def put(kind: str, key: str, value: Any) -> None:
        await memory_api.broker.store.put_record(kind, key, json.dumps(value).encode())

    bad_key = _hour(memory_api) if kind == HISTORY_KIND else "bad"
    await put(kind, bad_key, value)
    await put(WORKER_KIND, "good", WORKER)
    await put(SCHEDULE_KIND, "good", SCHEDULE)
    await put(RUN_KIND, "good", RUN)

    crew = (await memory_api.get("/api/v1/dashboard/workers")).json
    assert [worker["id"] for worker in crew["workers"]] == ["good"]
    assert [schedule["name"] for schedule in crew["schedules"]] == ["good"]
    runs = (await memory_api.get("/api/v1/pipeline/runs")).json["runs"]
    assert [run["id"] for run in runs] == ["good"]
    for path in (
        "/api/v1/pipeline/archives",
        "/api/v1/pipeline/analyses",
        "/api/v1/dashboard/overview",
        "/api/v1/dashboard/series?range=24h",
    ):
        answer = await memory_api.get(path)
        assert answer.status == 200, (path, answer)
    said = f"record {bad_key!a} of kind {kind!a} is malformed"
    assert any(said in message for message in caplog.messages)


def _hour(api: Api) -> str:
    return datetime.fromtimestamp(api.clock.now() / SECOND, UTC).strftime("%Y-%m-%dT%H")
