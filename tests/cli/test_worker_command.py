"""`monarq worker`, with real processes: started, stopped from elsewhere, killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from monarq.client.client import Client
from monarq.jobs.identity import identify
from monarq.jobs.presence import WorkerInfo
from monarq.operations.records import WORKER_KIND
from monarq.times import iso
from tests.cli.conftest import Run
from tests.cli.invoking import Invoke
from tests.postgres_server import fresh_database
from tests.server.serving import ServerProcess, sqlite_settings
from tests.shared_postgres import POSTGRES_NAMES

pytestmark = pytest.mark.slow

SECONDS = 60.0


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"never {what}")


@pytest.fixture
def workers(cli: Invoke, monarq: Run) -> Iterator[Callable[..., list[str]]]:
    """Starts detached workers, and ends them with the test."""

    def start(count: int = 1) -> list[str]:
        done = monarq("worker", "start", "--detach", "--count", str(count), "--json")
        ids: list[str] = json.loads(done.stdout)["workers"]
        assert len(ids) == count
        until(lambda: set(ids) <= running(cli), "running")
        return ids

    yield start
    for row in cli.json("worker", "list"):
        if row["state"] != "lost":
            assert signalled(row["pid"], signal.SIGKILL)


def signalled(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def running(cli: Invoke) -> set[str]:
    return {row["id"] for row in cli.json("worker", "list") if row["state"] == "running"}


def state(cli: Invoke, job: str) -> str:
    return str(cli.json("show", job)["state"])


def test_detached_workers_run_jobs_and_are_stopped_from_another_process(
    cli: Invoke, monarq: Run, workers: Callable[..., list[str]], tmp_path: Path
) -> None:
    ids = workers(2)
    release = tmp_path / "release"
    cli.ok("enqueue", f"until test -e {release}; do sleep 0.02; done; echo over", "--id", "long")
    until(lambda: state(cli, "long") == "processing", "begun")
    [busy] = until(
        lambda: [row for row in cli.json("worker", "list") if row["running"] == ["long"]],
        "seen to run it",
    )

    early = monarq("worker", "stop", "--all", "--timeout", "0.2", "--json")
    assert early.returncode == 1
    assert busy["id"] in json.loads(early.stdout)["running"]
    # To be asked again must not end the job either.
    monarq("worker", "stop", "--all", "--timeout", "0.2")
    assert state(cli, "long") == "processing"
    release.touch()
    late = monarq("worker", "stop", "--all", "--json")
    assert late.returncode == 0, late.stderr
    until(lambda: not cli.json("worker", "list"), "gone")
    assert state(cli, "long") == "completed"
    assert cli.json("show", "long")["attempts"] == 1
    rows = cli.json("worker", "list", "--all")
    assert {row["id"]: row["state"] for row in rows} == dict.fromkeys(ids, "stopped")
    log = cli.ok("worker", "logs", busy["id"]).out
    assert "long began on jobs" in log
    assert "long completed after" in log


def test_pids_are_shown_as_they_are_typed(cli: Invoke, workers: Callable[..., list[str]]) -> None:
    workers()
    [row] = cli.json("worker", "list")
    table = cli.ok("worker", "list").out
    assert f" {row['pid']} " in table
    assert " ago" in table, "times are relative for people"
    assert row["heartbeat_at"].endswith("Z"), "and exact for programs"


def test_a_worker_killed_mid_job_shows_as_lost_and_its_job_runs_again(
    cli: Invoke, workers: Callable[..., list[str]], tmp_path: Path
) -> None:
    [lost] = workers()
    begun = tmp_path / "begun"
    cli.ok(
        "enqueue",
        f"test -e {begun} && echo again || {{ touch {begun}; sleep 600; }}",
        "--id",
        "victim",
    )
    until(begun.exists, "begun")
    [row] = cli.json("worker", "list")
    children = psutil.Process(row["pid"]).children(recursive=True)
    os.kill(row["pid"], signal.SIGKILL)
    until(lambda: not psutil.pid_exists(row["pid"]) or is_zombie(row["pid"]), "dead")
    assert {each["id"]: each["state"] for each in cli.json("worker", "list")} == {lost: "lost"}
    # What it ran must not go on beside the next attempt.
    _, alive = psutil.wait_procs(children, timeout=SECONDS)
    assert not [each for each in alive if each.status() != psutil.STATUS_ZOMBIE]
    said = cli("doctor")
    assert f"1 were lost: {lost}" in said.out

    workers()
    until(lambda: state(cli, "victim") == "completed", "run again")
    first, second = cli.json("show", "victim")["history"]
    assert (first["outcome"], second["outcome"]) == ("expired", "completed")
    assert second["stdout"] == "again\n"


def is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_pid_that_is_another_process_by_now_is_never_signalled(cli: Invoke) -> None:
    """As after a reboot: the record's PID lives, but it is not the worker."""
    cli.ok("enqueue", "true")
    address = f"sqlite:///{cli.environment['XDG_DATA_HOME']}/monarq/monarq.db"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        process = identify(bystander.pid)
        now = iso(time.time_ns() // 1000)
        info = WorkerInfo(
            id="before-the-reboot",
            host=process.host,
            process=msgspec.structs.replace(process, started_at=process.started_at - 1000),
            queues=["jobs"],
            concurrency=1,
            state="running",
            started_at=now,
            heartbeat_at=now,
            running=[],
            completed=0,
            failed=0,
        )
        with Client(address) as client:
            client.admin.put_record(WORKER_KIND, info.id, msgspec.json.encode(info))
        assert cli.json("worker", "list")[0]["state"] == "lost"
        assert "no worker" in cli.refused("worker", "stop", info.id, "--force", "--timeout", "0")
        stopped = cli.json("worker", "stop", "--all", "--force", "--timeout", "0")
        assert stopped == {"stopped": [], "killed": [], "running": []}
        assert bystander.poll() is None
        bystander.kill()


def test_a_job_that_hangs_is_killed_only_with_force(
    cli: Invoke, workers: Callable[..., list[str]]
) -> None:
    [worker] = workers()
    cli.ok("enqueue", "sleep 600", "--id", "hangs")
    until(lambda: state(cli, "hangs") == "processing", "begun")
    assert cli("worker", "stop", worker, "--timeout", "0").code == 1
    done = cli.json("worker", "stop", worker, "--timeout", "0.2", "--force")
    assert done["killed"] == [worker]
    assert cli.json("worker", "list")[0]["state"] == "lost"


def test_logs_follow_a_job_while_it_prints_and_end_with_it(
    cli: Invoke, workers: Callable[..., list[str]], environment: dict[str, str], tmp_path: Path
) -> None:
    workers()
    release = tmp_path / "release"
    waiting = f"until test -e {release}; do sleep 0.02; done"
    cli.ok("enqueue", f"echo first; {waiting}; echo second", "--id", "chatty")
    until(lambda: state(cli, "chatty") == "processing", "begun")
    with subprocess.Popen(
        [sys.executable, "-m", "monarq", "logs", "chatty", "--follow"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n", "while it runs"
        assert state(cli, "chatty") == "processing"
        release.touch()
        assert process.stdout.read() == "second\n"
        assert process.wait(SECONDS) == 0
    assert cli.ok("logs", "chatty", "--attempt", "1").out == "first\nsecond\n"


def test_logs_tell_what_runs_from_what_does_not(
    cli: Invoke, monarq: Run, workers: Callable[..., list[str]], tmp_path: Path
) -> None:
    cli.ok("enqueue", "echo out", "--id", "j")
    assert cli.json("logs", "j") == {"attempt": None, "output": "", "running": False}
    assert "has not run yet" in cli.ok("logs", "j").err
    assert "no attempt 1: it has had 0 attempts" in cli.refused("logs", "j", "--attempt", "1")

    monarq("worker", "start", "--burst")
    assert cli.json("logs", "j") == {"attempt": 1, "stdout": "out\n", "stderr": ""}
    for more in ([], ["--json"], ["--follow"]):
        said = cli.refused("logs", "j", "--attempt", "99", *more)
        assert "no attempt 99: it has had 1 attempt" in said

    release = tmp_path / "release"
    cli.ok("enqueue", f"until test -e {release}; do sleep 0.02; done", "--id", "runs")
    workers()
    until(lambda: state(cli, "runs") == "processing", "begun")
    assert cli.json("logs", "runs") == {"attempt": 1, "output": "", "running": True}
    release.touch()
    until(lambda: state(cli, "runs") == "completed", "done")


def test_in_the_foreground_each_job_is_told_and_ctrl_c_lets_it_finish(
    cli: Invoke, environment: dict[str, str], tmp_path: Path
) -> None:
    release = tmp_path / "release"
    cli.ok("enqueue", f"until test -e {release}; do sleep 0.02; done", "--id", "slow")
    with subprocess.Popen(
        [sys.executable, "-m", "monarq", "worker", "start"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "slow began on jobs" in line:
                process.send_signal(signal.SIGINT)
            if "stops when its jobs are done" in line:
                release.touch()
        assert process.wait(SECONDS) == 0
    assert any("slow completed after" in line for line in said), said
    assert state(cli, "slow") == "completed"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGKILL])
def test_in_the_foreground_workers_end_with_their_command_however_that_ends(
    cli: Invoke, environment: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    release = tmp_path / "release"
    cli.ok("enqueue", f"until test -e {release}; do sleep 0.02; done", "--id", "slow")
    with subprocess.Popen(
        [sys.executable, "-m", "monarq", "worker", "start", "--count", "2"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            until(lambda: len(running(cli)) == 2 and state(cli, "slow") == "processing", "begun")
            process.send_signal(number)
            until(lambda: not running(cli), "told to stop")
            assert len(cli.json("worker", "list")) == 1, "the one that has a job finishes it"
            release.touch()
            code = process.wait(SECONDS)
        finally:
            release.touch()
            process.kill()
    until(lambda: not cli.json("worker", "list"), "gone")
    assert code == (-number if number is signal.SIGKILL else 0)
    assert {row["state"] for row in cli.json("worker", "list", "--all")} == {"stopped"}
    assert state(cli, "slow") == "completed"


def test_a_worker_of_a_broker_tells_of_jobs_and_not_of_requests(
    cli: Invoke, monarq: Run, server: ServerProcess
) -> None:
    cli.ok("enqueue", "true", "--id", "quick", "--url", server.url)
    done = monarq("worker", "start", "--burst", "--url", server.url)
    assert done.returncode == 0
    assert "quick completed after" in done.stderr
    assert "HTTP" not in done.stderr


EXITING = """
import os
from monarq import Client

mq = Client({address!r})

@mq.task(retries=0)
def leave(how):
    exec(how)

if __name__ == "__main__":
    import sys
    leave.enqueue(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("os._exit(2)", "ended with exit code 2"),
        ("os.kill(os.getpid(), 11)", "was killed by SIGSEGV"),
        ("os.kill(os.getpid(), 15 + 25)", "was killed by signal 40"),
    ],
)
def test_how_workers_died_is_said_and_the_exit_code_is_one_of_ours(
    environment: dict[str, str], tmp_path: Path, how: str, said: str
) -> None:
    address = f"sqlite:///{tmp_path / 'app.db'}"
    (tmp_path / "leaving.py").write_text(EXITING.format(address=address))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    assert run("leaving.py", how).returncode == 0
    done = run("-m", "monarq", "worker", "start", "--app", "leaving:mq", "--burst")
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if line.endswith(said)], done.stderr


APP = """
from monarq import Client

mq = Client({address!r}{options})

@mq.task(queue="mail")
def greet(name):
    return f"hello {{name}}"

if __name__ == "__main__":
    print(greet.enqueue("ada").id)
"""


def test_a_worker_of_an_app_works_where_the_app_enqueues(
    cli: Invoke, environment: dict[str, str], tmp_path: Path
) -> None:
    address = f"sqlite:///{tmp_path / 'app.db'}"
    (tmp_path / "shop.py").write_text(APP.format(address=address, options=""))
    (tmp_path / "here.py").write_text(APP.format(address="memory:", options=""))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    job = run("shop.py").stdout.strip()
    assert run("-m", "monarq", "worker", "start", "--app", "shop:mq", "--burst").returncode == 0
    assert cli.json("show", job, "--store", address)["state"] == "completed"
    refused = run("-m", "monarq", "worker", "start", "--app", "here:mq", "--burst")
    assert refused.returncode == 1
    assert "workers cannot reach them" in refused.stderr


def works(directory: Path, environment: dict[str, str], address: str, options: str) -> None:
    """An app that enqueues with these options gets its job done by a worker that knows only the
    app."""
    (directory / "own.py").write_text(APP.format(address=address, options=f", {options}"))
    outcome = "import own, sys; print(own.mq.job(sys.argv[1]).result(30))"

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    job = run("own.py")
    run("-m", "monarq", "worker", "start", "--app", "own:mq", "--burst")
    assert run("-c", outcome, job) == "hello ada"


def test_a_worker_of_an_app_has_the_keys_of_its_store(
    environment: dict[str, str], tmp_path: Path
) -> None:
    works(tmp_path, environment, f"sqlite:///{tmp_path / 'app.db'}", f"keys=[{bytes(32)!r}]")


def test_a_worker_of_an_app_has_the_token_for_its_broker(
    monarq: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    file = str(tmp_path / "keys.json")
    made = monarq("api-key", "create", "app", "--role", "admin", "--json", "--file", file)
    token = json.loads(made.stdout)["key"]
    with ServerProcess(sqlite_settings(tmp_path) | {"api_keys": file}) as server:
        works(tmp_path, environment, server.url, f"token={token!r}")


async def test_a_worker_of_an_app_has_the_schema_of_its_store(
    environment: dict[str, str], postgres_servers: Mapping[str, str], tmp_path: Path
) -> None:
    async with fresh_database(postgres_servers[POSTGRES_NAMES[-1]]) as dsn:
        works(tmp_path, environment, dsn, "schema='shop'")


def test_where_workers_work_is_not_seen_by_everyone_on_the_machine(
    cli: Invoke, monarq: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    address = f"sqlite:///{tmp_path / 'secret.db'}"
    made = monarq("worker", "start", "--detach", "--store", address, "--json")
    [worker] = json.loads(made.stdout)["workers"]
    [row] = cli.json("worker", "list", "--store", address)
    assert row["id"] == worker
    said = psutil.Process(row["pid"]).cmdline()
    cli.ok("worker", "stop", "--all", "--store", address)
    assert worker in said
    assert "secret" not in " ".join(said)


def test_a_worker_that_cannot_work_ends_and_says_why(cli: Invoke, monarq: Run) -> None:
    cli.ok("push", "orders", "1")
    done = monarq("worker", "start", "--queue", "orders", "--burst")
    assert done.returncode == 1
    assert "'orders' is an ordered queue: workers need a work queue" in done.stderr
    assert "Traceback" not in done.stderr
