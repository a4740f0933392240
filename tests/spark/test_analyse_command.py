"""`monarq pipeline analyse`, as a user runs it, and what is kept of it beside the queues."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from monarq.client.client import Client
from monarq.pipeline_records import ANALYSES_KEPT, ANALYSIS_KIND, REPORT_KIND, unpack_report
from monarq.spark.pipelines.analyse.figures import Analysis
from monarq.spark.pipelines.analyse.publishing import publish
from monarq.spark.pipelines.analyse.running import Result
from tests.cli.invoking import Invoke
from tests.server.serving import ServerProcess
from tests.spark.archiving import fill_everything

SECONDS = 600


def monarq(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MONARQ_")
    }
    return subprocess.run(
        [sys.executable, "-m", "monarq", *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=environment,
        check=False,
    )


@pytest.mark.slow
def test_from_queues_to_a_report_that_the_broker_shows(
    spark: SparkSession, cli: Invoke, broker: ServerProcess, store_url: str, tmp_path: Path
) -> None:
    fill_everything(store_url)
    lake = str(tmp_path / "lake")
    cli.ok("pipeline", "archive", lake, "--once", "--url", broker.url)
    answer = cli.json("pipeline", "analyse", lake, "--url", broker.url)
    texts = [finding["text"] for finding in answer["findings"]]
    assert "`orders`: 3 dead letters, 0.6 % of its messages; all of them are `näh`" in texts
    assert "`jobs`: 2 dead letters, 40 % of its items; all of them are `näh`" in texts
    assert any(text.startswith("`mäil/out`: nobody consumes it") for text in texts)

    latest = broker.get("/api/v1/pipeline/analyses/latest")
    assert latest.status == 200
    shown = msgspec.json.decode(latest.body, type=Analysis)
    assert shown.id == answer["run"]
    queues = {queue.queue: queue for queue in shown.queues}
    assert queues["orders"].messages == 500
    assert queues["orders"].partitions == 7
    assert queues["jobs"].kind == "work"
    report = broker.get("/api/v1/pipeline/analyses/latest/report")
    assert report.body.decode() == Path(answer["report"]).read_text()
    assert "<code>mäil/out</code>" in report.body.decode()
    found = pq.read_table(Path(answer["folder"]) / "queues.parquet")
    assert sorted(found["queue"].to_pylist()) == sorted(queues)
    [run, *_] = broker.get("/api/v1/pipeline/runs").json["runs"]
    assert (run["pipeline"], run["outcome"], run["id"]) == ("analyse", "succeeded", answer["run"])
    assert run["rows"] == answer["rows"] > 500


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["LAKE"], "there is no lake at"),
        (["LAKE", "--since", "yesterday"], "--since must be"),
        (["LAKE", "--conf", "memory=1g"], "there is no lake at"),
    ],
)
def test_what_is_wrong_is_one_line_before_spark_starts(
    tmp_path: Path, arguments: list[str], error: str
) -> None:
    given = [str(tmp_path / "none") if each == "LAKE" else each for each in arguments]
    ran = monarq("pipeline", "analyse", *given, "--store", f"sqlite:///{tmp_path}/monarq.db")
    assert ran.returncode == 1
    assert ran.stdout == ""
    [line] = ran.stderr.splitlines()
    assert error in line
    assert not list(tmp_path.iterdir())


def test_the_last_analyses_are_kept_beside_the_queues(tmp_path: Path) -> None:
    with Client(f"sqlite:///{tmp_path}/monarq.db") as client:
        for number in range(ANALYSES_KEPT + 2):
            made = Analysis(
                id=f"r{number:03}", lake="lake", generated_at=number, window=None, percentiles=""
            )
            publish(client.admin, Result(made, f"<p>{number}</p>", tmp_path))
        for kind in (ANALYSIS_KIND, REPORT_KIND):
            kept = [record.key for record in client.admin.list_records(kind, limit=100).rows]
            assert kept == [f"r{number:03}" for number in range(2, ANALYSES_KEPT + 2)]
        last = client.admin.get_record(REPORT_KIND, "r021")
        assert unpack_report(last.value) == "<p>21</p>"
