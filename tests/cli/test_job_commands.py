"""Jobs as a person types them: enqueue, list, show, logs, cancel, retry, status, dlq, config."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from monarq.cli.job_views import attempt_row
from monarq.model import Attempt, AttemptOutcome
from monarq.times import Micros
from tests.cli.conftest import Run
from tests.cli.invoking import Invoke


def work(monarq: Run, cli: Invoke) -> None:
    """Let a worker run what there is."""
    kept = {name: value for name, value in cli.environment.items() if name.startswith("MONARQ_")}
    done = monarq("worker", "start", "--burst", **kept)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_job_is_enqueued_run_and_looked_at(anywhere: Invoke, monarq: Run) -> None:
    made = anywhere.json(
        "enqueue", '{"id":"job1","command":"echo out; echo err >&2; exit $CODE"}', "--env", "CODE=0"
    )
    assert (made["id"], made["state"], made["queue"]) == ("job1", "pending", "jobs")
    anywhere.ok("enqueue", "no-such-program", "--id", "bad", "--max-retries", "0")
    assert anywhere.json("status")["jobs"]["pending"] == 2

    work(monarq, anywhere)

    states = {row["id"]: row["state"] for row in anywhere.json("list")}
    assert states == {"job1": "completed", "bad": "dead"}
    shown = anywhere.json("show", "job1")
    [attempt] = shown["history"]
    assert (attempt["exit_code"], attempt["stdout"], attempt["stderr"]) == (0, "out\n", "err\n")
    logs = anywhere.ok("logs", "job1")
    assert (logs.out, logs.err) == ("out\n", "err\n")
    assert "exit code 127" in anywhere.ok("show", "bad").out

    [letter] = anywhere.json("dlq", "list")
    assert letter["id"] == "bad"
    assert anywhere.json("dlq", "show", "bad")["payload"]["command"] == "no-such-program"
    assert anywhere.json("dlq", "retry", "bad") == {"retried": 1}
    assert anywhere.json("list", "--state", "pending")[0]["id"] == "bad"
    assert anywhere.json("cancel", "bad")["state"] == "cancelled"
    assert anywhere.json("retry", "bad")["state"] == "pending"
    counts = anywhere.json("status")["jobs"]
    assert (counts["pending"], counts["completed"], counts["dead"]) == (1, 1, 0)
    work(monarq, anywhere)
    assert "Remove 2 jobs" in anywhere.refused("clear")
    assert anywhere.json("clear", "--yes")["removed"] == 2, "the dead are jobs, too"
    assert anywhere.json("list") == []
    assert anywhere.json("dlq", "list") == []


def test_flags_win_over_the_job_and_the_job_over_the_defaults(cli: Invoke) -> None:
    cli.ok("config", "set", "max-retries", "9")
    cli.ok("config", "set", "priority", "2")
    assert cli.json("config", "set", "priority", "-2")["value"] == -2
    cli.ok("config", "set", "priority", "2")
    assert cli.json("config", "get", "max-retries") == {"name": "max-retries", "value": 9}
    row = cli.json("enqueue", '{"command": "true", "priority": 3}')
    assert (row["max_retries"], row["priority"]) == (9, 3)
    row = cli.json("enqueue", '{"command": "true", "priority": 3}', "--priority", "4")
    assert row["priority"] == 4
    row = cli.json("enqueue", "true", "--max-retries", "0")
    assert (row["max_retries"], row["priority"]) == (0, 2), "a zero that was given counts"

    sources = {row["name"]: (row["value"], row["from"]) for row in cli.json("config", "list")}
    assert sources["max-retries"] == (9, "set")
    assert sources["backoff-base"] == (2.0, "default")
    assert cli.json("config", "unset", "max-retries")["unset"] is True
    assert cli.json("config", "unset", "max-retries")["unset"] is False
    assert cli.json("enqueue", "true")["max_retries"] == 3
    [first, *_] = cli.json("list", "--limit", "1")
    assert first["max_retries"] in (0, 3, 9), "jobs that were enqueued keep theirs"


def test_a_file_has_a_job_a_line_in_both_ways_of_writing(cli: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "jobs"
    file.write_text('# a comment\n{"id": "a", "command": "true"}\n\necho two\n')
    assert cli.json("enqueue", "--file", str(file)) == {"enqueued": 2, "duplicates": 0}
    assert cli.json("enqueue", "--file", str(file)) == {"enqueued": 1, "duplicates": 1}
    file.write_text('echo three\n{"command": 5}\n')
    said = cli.refused("enqueue", "--file", str(file))
    assert "line 2: not a job" in said
    assert "line 1 and those behind it were not" in said
    assert len(cli.json("list")) == 3


def test_the_list_is_in_the_order_in_which_jobs_will_run(cli: Invoke) -> None:
    for name, priority in (("low", "1"), ("high", "9"), ("middle", "5")):
        cli.ok("enqueue", "true", "--id", name, "--priority", priority)
    cli.ok("enqueue", "true", "--id", "later", "--run-at", "+1h")
    rows = cli.json("list")
    assert [row["id"] for row in rows] == ["high", "middle", "low", "later"]
    assert [row["effective"] for row in rows][:3] == [11, 6, 4], "waiting counts"
    assert [row["id"] for row in cli.json("list", "--state", "scheduled")] == ["later"]
    assert [row["id"] for row in cli.json("list", "--limit", "2")] == ["high", "middle"]
    table = cli.ok("list").out
    assert re.search(r"in (59 m \d+ s|1 h 0 m) ", table), table
    assert "T" in rows[3]["run_at"], "exact in JSON"


@pytest.mark.slow
def test_a_failed_job_is_told_from_one_that_is_scheduled(cli: Invoke, monarq: Run) -> None:
    cli.ok("enqueue", "true", "--id", "later", "--run-at", "+1h")
    cli.ok("enqueue", "exit 1", "--id", "again", "--backoff-base", "900")
    work(monarq, cli)
    counts = cli.json("status")["jobs"]
    assert (counts["scheduled"], counts["failed"]) == (1, 1)
    assert [row["id"] for row in cli.json("list", "--state", "failed")] == ["again"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("enqueue",), "give a command"),
        (("enqueue", "true", "--file", "x"), "give a command, or --file"),
        (("enqueue", "{bad"), "not a job: what begins with { must be JSON"),
        (("enqueue", '{"comand": "true"}'), "a job has command, id, queue"),
        (("enqueue", '{"command": "true", "prioritie": 1}'), "prioritie"),
        (("enqueue", "true", "--env", "X"), "--env must be KEY=VALUE"),
        (("enqueue", "true", "--timeout", "x"), "--timeout must be a duration"),
        (("enqueue", "true", "--run-at", "x"), "run_at must be +5m"),
        (("enqueue", "true", "--max-retries", "-1"), "max_retries must be int >= 0"),
        (("enqueue", "true", "--timeout", "-5"), "timeout must be float > 0"),
        (("enqueue", "true", "--id", "there"), "already, and it is pending"),
        (("enqueue", "true", "--queue", "orders"), "does not run commands"),
        (("enqueue", "--file", "/nowhere"), "cannot read /nowhere"),
        (("show", "nope"), "`monarq list`"),
        (("logs", "nope"), "`monarq list`"),
        (("cancel", "nope"), "`monarq list`"),
        (("retry", "nope", "--queue", "jobs"), "in queue 'jobs'"),
        (("clear",), "--yes"),
        (("dlq", "show", "nope"), "there is no dead letter"),
        (("dlq", "retry"), "name a dead letter, or say --all"),
        (("dlq", "purge", "there", "--all"), "name a dead letter or say --all, not both"),
        (("config", "get", "nope"), "there are queue, max-retries"),
        (("config", "set", "max-retries", "many"), "must be a number"),
        (("config", "set", "max-retries", "-1"), "max-retries"),
        (("config", "unset", "nope"), "there are queue, max-retries"),
        (("worker", "stop"), "name a worker, or say --all"),
        (("worker", "stop", "nobody"), "`monarq worker list`"),
        (("worker", "logs", "nobody"), "no log"),
        (("worker", "logs", "../../x"), "no log"),
        (("worker", "start", "--app", "nothing"), "module:client"),
        (("worker", "start", "--app", "no.such:thing"), "--app no.such:thing"),
        (("worker", "start", "--queue", ","), "must name a queue"),
    ],
)
def test_a_mistake_is_told_with_the_way_out(
    cli: Invoke, arguments: tuple[str, ...], reason: str
) -> None:
    cli.ok("enqueue", "true", "--id", "there")
    cli.ok("push", "orders", "1")
    assert reason in cli.refused(*arguments)
    assert [row["id"] for row in cli.json("list")] == ["there"]


def test_a_job_took_as_long_as_it_ran_however_late_that_was_answered() -> None:
    late = Attempt(
        attempt=1,
        started_at=Micros(1_700_000_000_000_000),
        ended_at=Micros(1_700_000_023_000_000),
        outcome=AttemptOutcome.COMPLETED,
        consumer=None,
        error=None,
        raw_result=msgspec.Raw(b'{"seconds":0.025}'),
    )
    assert attempt_row(late)["seconds"] == 0.025
    assert attempt_row(msgspec.structs.replace(late, raw_result=msgspec.UNSET))["seconds"] == 23


def test_two_terminals_see_the_same_jobs(monarq: Run) -> None:
    assert monarq("enqueue", "true", "--id", "a").returncode == 0
    assert [row["id"] for row in json.loads(monarq("list", "--json").stdout)] == ["a"]
    assert monarq("cancel", "a").returncode == 0
    [row] = json.loads(monarq("list", "--json").stdout)
    assert row["state"] == "cancelled"
