"""Records that hold anything: commands and a running worker skip them and say which."""

import contextlib
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from monarq.client.client import Client
from monarq.jobs.enqueueing import SETTING_KIND
from monarq.jobs.identity import identify
from monarq.jobs.presence import WorkerInfo
from monarq.operations.records import SCHEDULE_KIND, STOP_KIND, WORKER_KIND
from monarq.pipeline_runs import RUN_KIND
from monarq.times import iso
from tests.cli.invoking import Invoke

SECONDS = 60.0

HOSTILE = [
    b"null",
    b"1",
    b'"evil"',
    b"[]",
    b"{}",
    b'{"expression":1}',
    b'{"id":"other","state":"running"}',
    b'{"x":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    b"1" * 5_000,
]
IDS = ["null", "number", "text", "list", "empty", "shape", "part", "deep", "huge"]


def address_of(cli: Invoke) -> str:
    return f"sqlite:///{cli.environment['XDG_DATA_HOME']}/monarq/monarq.db"


def store_record(cli: Invoke, kind: str, key: str, value: bytes) -> None:
    """Write a record past the API, which refuses what is nested too deeply."""
    path = address_of(cli).removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "insert into records (kind, key, value, updated_at) values (?, ?, ?, ?)",
            (kind, key, value, time.time_ns() // 1000),
        )


def worker_info(name: str, pid: int, **changes: Any) -> WorkerInfo:
    now = iso(time.time_ns() // 1000)
    process = identify(pid)
    info = WorkerInfo(
        id=name,
        host=process.host,
        process=process,
        queues=["jobs"],
        concurrency=1,
        state="running",
        started_at=now,
        heartbeat_at=now,
        running=[],
        completed=0,
        failed=0,
    )
    return msgspec.structs.replace(info, **changes)


@pytest.mark.parametrize("value", HOSTILE, ids=IDS)
def test_commands_skip_malformed_records(
    cli: Invoke, caplog: pytest.LogCaptureFixture, value: bytes
) -> None:
    cli.ok("enqueue", "true", "--id", "before")
    store_record(cli, WORKER_KIND, "w-evil", value)
    store_record(cli, STOP_KIND, "w-evil", value)
    for name in ("timeout", "priority", "max-retries"):
        store_record(cli, SETTING_KIND, name, b'{"a":' + value + b"}")
    store_record(cli, RUN_KIND, "r-evil", value)
    assert cli.json("worker", "list", "--all") == []
    assert "'w-evil' of kind 'worker'" in caplog.text
    assert cli("doctor").code == 0
    assert "no worker" in cli.refused("worker", "stop", "w-evil")
    assert cli.json("worker", "stop", "--all")["stopped"] == []
    cli.ok("enqueue", "true", "--id", "after")
    assert cli.json("show", "after")["priority"] == 5
    assert "'timeout' of kind 'job-setting'" in caplog.text
    assert {row["from"] for row in cli.json("config", "list")} == {"default"}
    assert cli.json("pipeline", "runs") == []
    assert "'r-evil' of kind 'pipeline-run'" in caplog.text


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "someone-else"},
        {"heartbeat_at": "soon"},
        {"started_at": "2026-01-01T00:00:00"},
        {"process": {"pid": -1}},
        {"process": {"pid": 2**40}},
    ],
    ids=["id", "heartbeat", "no zone", "negative pid", "huge pid"],
)
def test_a_worker_record_with_an_impossible_field_is_skipped(
    cli: Invoke, caplog: pytest.LogCaptureFixture, changes: dict[str, Any]
) -> None:
    cli.ok("enqueue", "true")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        good = worker_info("w-good", process.pid)
        bad = worker_info("w-bad", process.pid)
        process_changes = changes.pop("process", {})
        bad = msgspec.structs.replace(
            bad, process=msgspec.structs.replace(bad.process, **process_changes)
        )
        # Not by `replace`, which would check it.
        value = msgspec.to_builtins(bad) | {
            WorkerInfo.__struct_encode_fields__[WorkerInfo.__struct_fields__.index(name)]: text
            for name, text in changes.items()
        }
        with Client(address_of(cli)) as client:
            client.admin.put_record(WORKER_KIND, "w-good", msgspec.json.encode(good))
            client.admin.put_record(WORKER_KIND, "w-bad", msgspec.json.encode(value))
        rows = cli.ok("worker", "list", "--json").json
        assert [row["id"] for row in rows] == ["w-good"]
        assert "w-good" in cli.ok("worker", "list").out
        assert "'w-bad' of kind 'worker'" in caplog.text
        process.kill()


@pytest.mark.parametrize("arguments", [["w-victim"], ["--all"]], ids=["by id", "all"])
def test_stop_signals_no_process_that_a_record_only_names(
    cli: Invoke, arguments: list[str]
) -> None:
    """The record has the PID, host and start time of a process of the same user."""
    cli.ok("enqueue", "true")
    # Its command line holds the id, but it is not that of a worker.
    command = [sys.executable, "-c", "input()", "worker", "run", "--id", "w-victim"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as victim:
        info = worker_info("w-victim", victim.pid)
        with Client(address_of(cli)) as client:
            client.admin.put_record(WORKER_KIND, info.id, msgspec.json.encode(info))
            answer = cli("worker", "stop", *arguments, "--timeout", "0.2", "--force", "--json")
            assert client.admin.get_record(STOP_KIND, info.id).value == b"{}"
        assert answer.code == 1
        assert answer.json == {"stopped": [], "killed": [], "running": ["w-victim"]}
        assert "asked to stop through the store only" in answer.err
        assert victim.poll() is None
        assert victim.stdin is not None
        victim.stdin.write(b"\n")
        victim.stdin.close()
        assert victim.wait(SECONDS) == 0, "no signal has reached it"


SCHEDULED = """
from monarq import Client

mq = Client({address!r})

@mq.cron("* * * * * *")
def tick():
    print("ticked", flush=True)

@mq.cron("* * * * * *")
def tock():
    print("tocked", flush=True)
"""


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"never {what}")


@pytest.mark.slow
def test_a_worker_keeps_its_schedules_beside_malformed_records(
    cli: Invoke, environment: dict[str, str], tmp_path: Path
) -> None:
    address = f"sqlite:///{tmp_path / 'app.db'}"
    (tmp_path / "ticking.py").write_text(SCHEDULED.format(address=address))
    with Client(address) as client:
        for name in ("ticking:tick", "tick"):
            client.admin.put_record(SCHEDULE_KIND, name, b'{"expression":1}')
        client.admin.put_record(WORKER_KIND, "w-evil", b'{"id":7}')
        client.admin.put_record(STOP_KIND, "w-evil", b"[]")
        client.admin.put_record(SETTING_KIND, "timeout", b'"evil"')
    log = tmp_path / "log"
    with (
        log.open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-m", "monarq", "worker", "start", "--app", "ticking:mq"],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        ) as process,
    ):
        try:
            until(lambda: b"ticked" in log.read_bytes(), "ticked")
            until(lambda: b"tocked" in log.read_bytes(), "tocked")
            with Client(address) as client:
                names = [row.key for row in client.admin.list_records(SCHEDULE_KIND).rows]
                for name in names:
                    client.admin.put_record(SCHEDULE_KIND, name, b'["evil"]')
                [row] = cli.json("worker", "list", "--store", address)
                assert row["state"] == "running"
                # Any value asks it to stop.
                client.admin.put_record(STOP_KIND, row["id"], b'["evil"]')
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
    assert "of kind 'schedule' is malformed" in log.read_text()
