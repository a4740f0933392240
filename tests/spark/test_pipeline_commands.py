"""The commands `monarq pipeline …`: what they answer, and what they say when they cannot."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import jwt
import pytest
from pyspark.sql import SparkSession

from monarq.errors import OverloadedError
from monarq.spark.lake import Lake
from monarq.spark.lake.locks import held
from monarq.spark.pipelines.registry import RunRegistry
from tests.cli.invoking import Invoke
from tests.server.serving import ServerProcess
from tests.spark.archiving import expect_messages
from tests.spark.lake_rows import add, messages
from tests.spark.seeding import fill, make_queue, numbered
from tests.spark.standalone_cluster import standalone_cluster

ROOT = Path(__file__).parents[2]
SECRET = "a secret of thirty-two bytes or more"


def command(*arguments: str, limit: int | None = None, **variables: str) -> tuple[int, str, str]:
    """Run it as a process of its own: its exit code, stdout and stderr. `limit`: no file may
    become larger."""

    def small() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    kept = {name: text for name, text in os.environ.items() if not name.startswith("MONARQ_")}
    done = subprocess.run(
        [sys.executable, "-m", "monarq", "pipeline", *arguments],
        env=kept | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        preexec_fn=small,
    )
    return done.returncode, done.stdout, done.stderr


def without_progress(err: str) -> str:
    """On a slow machine, there are lines that say how far it is."""
    return "".join(line for line in err.splitlines(True) if not line.endswith(" s left\n"))


@pytest.mark.slow
def test_archive_compact_replay_and_runs_say_what_they_did(
    spark: SparkSession, cli: Invoke, store_url: str, tmp_path: Path
) -> None:
    fill(store_url, numbered("orders", 20, partitions=2))
    lake = str(tmp_path / "lake")
    told = cli.json("pipeline", "archive", lake, "--once")
    assert (told["rows"]["messages"], told["commits"], told["lake"]) == (20, 1, lake)
    assert cli.ok("pipeline", "archive", lake, "--once").out == "nothing new to archive\n"
    fill(store_url, numbered("orders", 5, first=20))
    assert cli.ok("pipeline", "archive", lake, "--once").out.startswith("archived 5 messages in 1")
    expect_messages(Path(lake), store_url)
    told = cli.json("pipeline", "compact", lake)
    assert (told["files_before"], told["files_after"], told["rows"]) == (2, 1, 25)
    told = cli.json("pipeline", "replay", lake, "--to", "again", "--where", "seq < 3", "--dry-run")
    assert (told["messages"], told["done"]) == (4, False)
    assert cli("queue", "show", "again").code == 1
    told = cli.json("pipeline", "replay", lake, "--to", "again", "--where", "seq < 3")
    assert (told["messages"], told["duplicates"], told["done"]) == (4, 0, True)
    assert cli.json("queue", "show", "again")["stored"] == 4
    bad = cli.refused("pipeline", "replay", lake, "--to", "again", "--where", "nonsense >")
    assert bad.count("\n") == 1
    runs = cli.json("pipeline", "runs")
    assert [(run["pipeline"], run["outcome"], run["rows"]) for run in runs] == [
        ("replay", "failed", 0),
        ("replay", "succeeded", 4),
        ("compact", "succeeded", 25),
        ("archive", "succeeded", 5),
        ("archive", "succeeded", 0),
        ("archive", "succeeded", 20),
    ]
    assert "nonsense" in runs[0]["error"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("archive LAKE --format csv", "--format must be parquet or delta"),
        ("archive LAKE --interval soon", "--interval must be a duration"),
        ("archive LAKE --table items", "table 'items' is not archived"),
        ("archive LAKE --conf memory=1g", "--conf must be spark.NAME=VALUE"),
        ("archive LAKE --once --master here", "--master must be local[N], spark://HOST:PORT"),
        ("archive LAKE --once --queue oders", "there is no queue 'oders'"),
        ("archive s3://bucket/lake --once", "a lake is a folder"),
        ("archive FILE/lake --once", "Not a directory"),
        ("archive LAKE --once --url http://127.0.0.1:9", "no broker answers"),
        ("archive LAKE --once --store sqlite:////nowhere/x.db", "there is no store"),
        ("archive LAKE --once --store memory:", "cannot reach 'memory:'"),
        ("compact LAKE", "there is no lake at"),
        ("replay LAKE --to x", "there is no lake at"),
        ("replay LAKE --since soon", "--since must be"),
        ("replay LAKE --rate 0", "the rate must be more than 0"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line_before_spark_starts(
    cli: Invoke, store_url: str, tmp_path: Path, words: str, said: str
) -> None:
    make_queue(store_url, "orders")
    (tmp_path / "file").write_text("")
    places = {"LAKE": str(tmp_path / "lake"), "FILE/lake": str(tmp_path / "file" / "lake")}
    told = cli.refused("pipeline", *(places.get(word, word) for word in words.split()))
    assert said in told
    assert told.count("\n") == 1


def test_a_second_archive_is_refused_while_one_runs(
    cli: Invoke, store_url: str, tmp_path: Path
) -> None:
    make_queue(store_url, "orders")
    lake = str(tmp_path / "lake")
    cli.ok("pipeline", "archive", lake, "--once")
    with held(tmp_path / "lake" / "_lock"):
        told = cli.refused("pipeline", "archive", lake, "--once")
    assert f"another archive into {lake} is running" in told


def test_a_lake_of_another_store_is_refused(cli: Invoke, store_url: str, tmp_path: Path) -> None:
    make_queue(store_url, "orders")
    add(Lake.open_or_make(tmp_path / "lake", store="another"), messages("orders", [1]))
    told = cli.refused("pipeline", "archive", str(tmp_path / "lake"), "--once")
    assert "is an archive of another store" in told


def test_an_expired_token_is_told(cli: Invoke, store_url: str, tmp_path: Path) -> None:
    token = jwt.encode({"sub": "me", "role": "admin", "exp": 1}, SECRET, "HS256")
    settings = {"store": store_url, "auth": True, "jwt_secret": SECRET}
    with ServerProcess(settings | {"data_dir": str(tmp_path / "broker")}) as server:
        address = ("--url", server.url, "--token", token)
        told = cli.refused("pipeline", "archive", str(tmp_path / "lake"), "--once", *address)
    assert "expired" in told
    assert token not in told
    assert not (tmp_path / "lake").exists()


def test_a_token_that_may_only_read_archives_all_the_same(
    spark: SparkSession, cli: Invoke, store_url: str, tmp_path: Path
) -> None:
    fill(store_url, numbered("orders", 3))
    make_lake_known(cli, tmp_path)
    token = jwt.encode({"sub": "me", "role": "read", "exp": 4_000_000_000}, SECRET, "HS256")
    settings = {"store": store_url, "auth": True, "jwt_secret": SECRET}
    with ServerProcess(settings | {"data_dir": str(tmp_path / "broker")}) as server:
        address = ("--url", server.url, "--token", token)
        answer = cli.ok("pipeline", "archive", str(tmp_path / "lake"), "--once", *address)
    assert "archived 3 messages" in answer.out
    assert "this run is not noted in the store" in answer.err


def make_lake_known(cli: Invoke, tmp_path: Path) -> None:
    """The store has its id from whoever may write."""
    cli.ok("pipeline", "archive", str(tmp_path / "lake"), "--once", "--table", "attempts")


@pytest.mark.slow
class UnlistedRecords:
    """Takes records, and cannot list them."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def put_record(self, kind: str, key: str, value: bytes) -> None:
        self.outcomes.append(json.loads(value)["outcome"])

    def list_records(self, *_: object, **__: object) -> None:
        raise OverloadedError("try again")


def test_a_run_goes_on_if_old_runs_cannot_be_removed() -> None:
    records = UnlistedRecords()
    told: list[str] = []
    with RunRegistry(records, warn=told.append).run("archive"):
        pass
    assert told == ["old runs could not be removed from the store: try again"]
    assert records.outcomes == ["running", "succeeded"]


def test_a_full_disk_is_told_in_one_line_and_leaves_nothing(store_url: str, tmp_path: Path) -> None:
    fill(store_url, numbered("orders", 20_000))
    lake = tmp_path / "lake"
    # Spark itself writes little; a file of the lake would be larger than this.
    code, out, err = command("archive", str(lake), "--once", "--store", store_url, limit=100_000)
    assert (code, out) == (1, ""), err
    assert err.startswith("monarq: nothing more can be written: ")
    assert err.count("\n") == 1
    assert Lake.open(lake).state().number == 0
    assert not list(lake.rglob("*.parquet"))


@pytest.mark.slow
def test_a_java_that_does_not_start_is_told_in_one_line(store_url: str, tmp_path: Path) -> None:
    fill(store_url, numbered("orders", 1))
    code, out, err = command(
        *("archive", str(tmp_path / "lake"), "--once", "--store", store_url),
        *("--conf", "spark.driver.memory=much"),
    )
    assert (code, out) == (1, "")
    assert err.startswith("monarq: Spark did not start: ")
    assert err.count("\n") == 1


@pytest.mark.slow
def test_a_standalone_cluster_with_two_workers_archives_and_analyses_over_http(
    broker: ServerProcess, store_url: str, tmp_path: Path
) -> None:
    fill(store_url, numbered("orders", 600, partitions=50))
    lake = str(tmp_path / "lake")
    settings = {
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    conf = [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
    with standalone_cluster(tmp_path, workers=2) as master:
        where = ["--url", broker.url, "--master", master, *conf, "--json"]
        code, out, err = command("archive", lake, "--once", *where)
        assert (code, without_progress(err)) == (0, "")
        assert json.loads(out)["rows"]["messages"] == 600
        code, out, err = command("analyse", lake, *where)
        assert (code, without_progress(err)) == (0, "")
        assert json.loads(out)["totals"]["messages"] == 600
    expect_messages(Path(lake), store_url)
    assert len(broker.get("/api/v1/pipeline/analyses").json["analyses"]) == 1
    assert broker.get("/api/v1/pipeline/archives").json["archives"][0]["lake"] == lake
    assert len(list(tmp_path.glob("app-*"))) == 2


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_without_spark_a_command_says_what_to_install_and_nothing_else(
    cli: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    said = cli.refused("pipeline", "compact", str(tmp_path / "lake"))
    assert said == f"monarq: {missing} is not installed: pip install 'monarq[spark]'\n"
