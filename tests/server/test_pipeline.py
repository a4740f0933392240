"""What pipelines leave in the store, over HTTP."""

import tracemalloc
from typing import Any

import msgspec
import pytest

from monarq.pipeline_records import ANALYSIS_KIND, REPORT_KIND, pack_report
from monarq.pipeline_runs import ARCHIVE_KIND, RUN_KIND, Archive, ArchivedQueue, Run
from monarq.store import collecting
from tests.server.application import Api


async def put(api: Api, kind: str, key: str, value: Any) -> None:
    data = value if isinstance(value, bytes) else msgspec.json.encode(value)
    await api.broker.store.put_record(kind, key, data)


def run(api: Api, run_id: str, **fields: Any) -> Run:
    now = api.clock.now()
    return Run(
        **{
            "id": run_id,
            "pipeline": "archive",
            "started": now,
            "updated": now,
            "outcome": "running",
            **fields,
        }
    )


async def test_runs_are_listed_newest_first(api: Api) -> None:
    for number in range(5):
        await put(api, RUN_KIND, f"r{number}", run(api, f"r{number}", rows=number))
    answer = (await api.get("/api/v1/pipeline/runs?limit=3")).json
    assert [row["id"] for row in answer["runs"]] == ["r4", "r3", "r2"]
    assert answer["total"] == 5
    assert answer["runs"][0]["rows"] == 4
    assert answer["runs"][0]["startedAt"].endswith("Z")
    assert answer["runs"][0]["endedAt"] is None


async def test_a_run_that_is_no_longer_heard_of_was_killed(memory_api: Api) -> None:
    await put(memory_api, RUN_KIND, "r", run(memory_api, "r"))
    [row] = (await memory_api.get("/api/v1/pipeline/runs")).json["runs"]
    assert row["outcome"] == "running"
    memory_api.clock.advance(100)
    [row] = (await memory_api.get("/api/v1/pipeline/runs")).json["runs"]
    assert (row["outcome"], row["endedAt"]) == ("killed", row["updatedAt"])


async def test_archives_say_how_far_they_have_come(memory_api: Api) -> None:
    queues = [ArchivedQueue(queue="orders", rows=9, behind=2, archived_at=1_000_000)]
    await put(memory_api, ARCHIVE_KIND, "a", Archive(lake="/lake", at=2_000_000, queues=queues))
    assert (await memory_api.get("/api/v1/pipeline/archives")).json == {
        "archives": [
            {
                "lake": "/lake",
                "at": "1970-01-01T00:00:02.000000Z",
                "queues": [
                    {
                        "queue": "orders",
                        "rows": 9,
                        "behind": 2,
                        "archivedAt": "1970-01-01T00:00:01.000000Z",
                    }
                ],
            }
        ]
    }


async def test_an_analysis_is_listed_and_found_by_id_and_as_the_latest(memory_api: Api) -> None:
    for name in ("a1", "a2"):
        figures = {
            "id": name,
            "generatedAt": 1_000_000,
            "lake": "/lake",
            "findings": [{"text": f"found by {name}"}],
            "queues": [1, 2],
        }
        await put(memory_api, ANALYSIS_KIND, name, figures)
        await put(memory_api, REPORT_KIND, name, pack_report(f"<p>{name} é</p>"))
    listed = (await memory_api.get("/api/v1/pipeline/analyses")).json["analyses"]
    assert [row["id"] for row in listed] == ["a2", "a1"]
    assert listed[0]["findings"] == [{"text": "found by a2"}]
    assert "queues" not in listed[0]
    assert (await memory_api.get("/api/v1/pipeline/analyses/a1")).json["queues"] == [1, 2]
    assert (await memory_api.get("/api/v1/pipeline/analyses/latest")).json["id"] == "a2"
    page = await memory_api.get("/api/v1/pipeline/analyses/latest/report")
    assert page.body.decode() == "<p>a2 é</p>"


async def test_nothing_in_a_report_can_run(memory_api: Api) -> None:
    await put(memory_api, REPORT_KIND, "a", pack_report("<script>alert(1)</script>"))
    page = await memory_api.get("/api/v1/pipeline/analyses/a/report")
    headers = {name.lower(): value for name, value in page.headers.items()}
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert policy.startswith("sandbox;")
    assert headers["x-content-type-options"] == "nosniff"


async def test_records_that_no_pipeline_made_do_not_break_the_lists(memory_api: Api) -> None:
    for kind in (RUN_KIND, ARCHIVE_KIND, ANALYSIS_KIND, REPORT_KIND):
        await put(memory_api, kind, "bad", b'{"id": 1}')
    assert (await memory_api.get("/api/v1/pipeline/runs")).json["runs"] == []
    assert (await memory_api.get("/api/v1/pipeline/archives")).json["archives"] == []
    assert (await memory_api.get("/api/v1/pipeline/analyses")).json["analyses"] == []
    answer = await memory_api.get("/api/v1/pipeline/analyses/bad/report")
    assert answer.status == 500
    assert "damaged" in answer.error


@pytest.mark.parametrize("path", ["latest", "nothing", "latest/report", "nothing/report"])
async def test_an_analysis_that_is_not_there_is_told(memory_api: Api, path: str) -> None:
    answer = await memory_api.get(f"/api/v1/pipeline/analyses/{path}")
    assert (answer.status, answer.code) == (404, "not_found")


async def test_a_report_that_unpacks_to_very_much_is_refused(memory_api: Api) -> None:
    """A record of 1 MiB may hold a page of a gigabyte."""
    await put(memory_api, REPORT_KIND, "bomb", pack_report("\0" * (64 << 20)))
    tracemalloc.start()
    answer = await memory_api.get("/api/v1/pipeline/analyses/bomb/report")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (answer.status, answer.code) == (409, "conflict")
    assert "more than 16 MiB" in answer.error
    assert peak < 40 << 20


async def test_lists_read_a_bounded_number_of_bytes(
    memory_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "MAX_BYTES", 100_000)
    for number in range(50):
        await put(memory_api, RUN_KIND, f"r{number:02}", run(memory_api, "r", error="x" * 10_000))
    assert 5 < (await memory_api.get("/api/v1/pipeline/runs")).json["total"] < 20
