"""The examples run, and show what they say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(directory: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=directory,
        env=os.environ | {"XDG_DATA_HOME": str(directory), "PYTHONPATH": str(EXAMPLES.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_run_here() -> None:
    known = {"order_flow.py", "exactly_once.py", "mail_tasks.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == known


@pytest.mark.slow
def test_orders_flow_in_order_and_what_failed_comes_back(tmp_path: Path) -> None:
    said = run(tmp_path, str(EXAMPLES / "order_flow.py"), f"sqlite:///{tmp_path}/mq.db")
    billed = said.partition("billing")[2].partition("shipping")[0]
    assert [line.split()[-1] for line in billed.splitlines() if "ada" in line] == ["1", "3", "5"]
    assert said.count("order 3 failed") == 2
    assert "because the warehouse is closed" in said
    assert said.rstrip().endswith("order 3 shipped")


@pytest.mark.slow
def test_words_are_counted_exactly_once(tmp_path: Path) -> None:
    said = run(tmp_path, str(EXAMPLES / "exactly_once.py"))
    assert said.count("not carried out") == 2
    assert "13 words, 51 letters" in said


@pytest.mark.slow
def test_tasks_are_enqueued_and_run_by_a_worker(tmp_path: Path) -> None:
    assert run(tmp_path, "-m", "examples.mail_tasks").count("enqueued") == 2
    where = ("--store", "sqlite:///mail.db")
    run(
        tmp_path, "-m", "monarq", "worker", "start", "--app", "examples.mail_tasks:mq",
        *where, "--burst",
    )  # fmt: skip
    listed = run(tmp_path, "-m", "monarq", "list", *where)
    assert listed.count("completed") == 2
    assert listed.count("scheduled") == 1
