"""Encrypted queues in pipelines: read with any of the keys, and copied in the clear only if that is
what somebody asked for."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from monarq.errors import InvalidRequestError
from monarq.model import Ack, AckStatus, Pop, Push, PushItem, QueueKind
from monarq.spark import sink_options
from monarq.spark.access import open_access
from monarq.spark.lake import Lake, read
from monarq.spark.lake.commits import LakeState
from monarq.spark.options import read_options
from monarq.spark.pipelines.archive import ArchiveOptions, Archiver
from monarq.spark.pipelines.archive_plan import ArchivePlan, make_plan
from monarq.spark.pipelines.place import Place
from monarq.spark.pipelines.user.reading import read_pipeline
from monarq.spark.pipelines.user.running import run_batch
from monarq.store import open_store
from tests.server.serving import ServerProcess

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
BOTH = f"{NEW.hex()},{OLD.hex()}"
PIPELINE = """
name = "copy"

[sources.orders]
queue = "QUEUE"
MORE

[sinks.out]
from = "orders"
files = "out"
"""


def seal_some(url: str) -> None:
    """A message under each key in `secret`, one of which died with an error; a plain one."""

    async def seal() -> None:
        for key in (OLD, NEW):
            async with await open_store(url, keys=[key, OLD]) as store:
                await store.configure("secret", options={"encryptionEnabled": True})
                await store.configure("jobs", kind=QueueKind.WORK)
                payload = json.dumps({"key": key.hex()[:4]}).encode()
                await store.push([Push([PushItem("secret", payload), PushItem("plain", b"{}")])])
                [popped] = await store.pop([Pop(queue="secret")])
                assert not isinstance(popped, Exception)
                ack = Ack(lease_id=popped.lease_id, status=AckStatus.DEAD, error="of a caller")
                await store.ack([ack])

    asyncio.run(seal())


def plan(url: str, keys: str | None, *patterns: str, decrypt: bool = False) -> ArchivePlan:
    return make_plan(
        open_access(url, encryption_key=keys),
        LakeState(),
        patterns=patterns,
        tables=("messages",),
        batch_messages=100,
        decrypt=decrypt,
    )


def test_an_encrypted_queue_is_not_archived_unless_that_is_asked_for(
    store_url: str, tmp_path: Path
) -> None:
    seal_some(store_url)
    settings = {
        "store": store_url,
        "data_dir": str(tmp_path / "broker"),
        "encryption_keys": BOTH,
    }
    with ServerProcess(settings) as broker:
        for url, keys in ((store_url, BOTH), (broker.url, None)):
            for patterns in ((), ("*",), ("secret",), ("s*", "plain")):
                with pytest.raises(InvalidRequestError, match=r"'secret'.*in the clear.*--decrypt"):
                    plan(url, keys, *patterns)
            assert plan(url, keys, "plain").behind == {"plain": 2}
            assert plan(url, keys, decrypt=True).behind == {"plain": 2, "secret": 2}


def command(folder: Path, store: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "monarq", "pipeline", *arguments, "--store", store],
        cwd=folder,
        env=os.environ
        | {
            "XDG_DATA_HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder),
            "MONARQ_ENCRYPTION_KEYS": BOTH,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_commands_refuse_encrypted_queues_in_a_sentence_that_says_what_to_do(
    store_url: str, tmp_path: Path
) -> None:
    seal_some(store_url)
    done = command(tmp_path, store_url, "archive", "lake", "--once")
    assert done.returncode == 1
    assert "'secret'" in done.stderr
    assert "--decrypt" in done.stderr
    assert not list((tmp_path / "lake").rglob("*.parquet"))
    for queue in ("secret", "s*"):
        (tmp_path / "p.toml").write_text(PIPELINE.replace("QUEUE", queue).replace("MORE", ""))
        done = command(tmp_path, store_url, "run", "p.toml")
        assert done.returncode == 1
        assert "give sources.orders decrypt = true" in done.stderr
        assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_archive_that_decrypts_holds_what_every_key_has_sealed(
    spark: SparkSession, store_url: str, tmp_path: Path
) -> None:
    seal_some(store_url)
    lake = Lake.open_or_make(tmp_path / "lake", store="s")
    with lake.archiving():
        options = ArchiveOptions(queues=["secret"], decrypt=True)
        place = Place(store_url, encryption_key=BOTH)
        Archiver(lambda: spark, lake, place, options, run="test").once()
    found = [row["payload"] for row in read(spark, lake, "messages").collect()]
    assert sorted(json.loads(payload)["key"] for payload in found) == ["0001", "2021"]
    assert {row["error"] for row in read(spark, lake, "dead_letters").collect()} == {"of a caller"}


def test_a_pipeline_reads_what_older_keys_have_sealed(
    spark: SparkSession, store_url: str, tmp_path: Path
) -> None:
    seal_some(store_url)
    text = PIPELINE.replace("QUEUE", "secret").replace("MORE", "decrypt = true")
    (tmp_path / "p.toml").write_text(text)
    pipeline = read_pipeline(tmp_path / "p.toml")
    options = Place(store_url, encryption_key=BOTH).options
    told: list[tuple[str, int]] = []
    run_batch(spark, pipeline, options, lambda name, rows: told.append((name, rows)))
    assert told == [("out", 2)]


def test_checked_options_show_neither_keys_nor_tokens() -> None:
    """They are in what Spark pickles, and may come into a log with it."""
    sealed = {"encryptionKey": BOTH, "url": "sqlite:///x.db", "queue": "q"}
    tokened = {"token": "open-sesame", "url": "http://localhost", "queue": "q"}
    shown = [
        repr(made)
        for options in (sealed, tokened)
        for made in (read_options(options), sink_options.read_sink_options(options))
    ]
    for text in (OLD.hex(), NEW.hex(), repr(OLD), repr(NEW), "open-sesame"):
        assert not any(text in one for one in shown)


def test_plans_show_no_key(
    spark: SparkSession, store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seal_some(store_url)
    options = Place(store_url, encryption_key=BOTH).options
    frame = spark.read.format("monarq").options(**options, queue="secret").load()
    frame.explain(mode="extended")
    frame.write.format("noop").mode("overwrite").save()
    shown = capsys.readouterr()
    for key in (OLD, NEW):
        assert key.hex() not in shown.out + shown.err
    assert frame.count() == 2
