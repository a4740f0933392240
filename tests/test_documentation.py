"""What the documentation shows works, and its links lead somewhere."""

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from monarq.client.client import Client
from tests.documented import ROOT, blocks, links, pages, runnable


def run(directory: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=directory,
        env=os.environ | {"XDG_DATA_HOME": str(directory), "XDG_CONFIG_HOME": str(directory)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_links_lead_somewhere() -> None:
    assert [
        f"{page}: {link}"
        for page in pages()
        for link in links(page)
        if not (ROOT / page).parent.joinpath(link).exists()
    ] == []


def test_python_blocks_are_python() -> None:
    for page in pages():
        for block in blocks(page, "python"):
            compile(block.code, page, "exec", flags=0x2000)  # top-level await is fine in prose


@pytest.mark.slow
def test_the_readmes_python_runs(tmp_path: Path) -> None:
    first, tasks = runnable("README.md", "python")
    (tmp_path / "first.py").write_text(first)
    (tmp_path / "shop.py").write_text(tasks)
    assert "{'total': 99}" in run(tmp_path, "first.py")
    run(tmp_path, "shop.py")
    worker = ("worker", "start", "--app", "shop:mq", "--burst")
    assert "to ada@example.org" in run(tmp_path, "-m", "monarq", *worker)


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path: Path) -> None:
    hello, shop = runnable("docs/tutorial.md", "python")
    (tmp_path / "hello.py").write_text(hello)
    (tmp_path / "shop.py").write_text(shop)
    said = run(tmp_path, "hello.py")
    assert "ada {'item': 'tea', 'cups': 2}" in said
    assert "bob {'item': 'coffee', 'cups': 1}" in said
    [shell] = [code for code in runnable("docs/tutorial.md", "sh") if "shop.py" in code]
    assert "enqueued" in run(tmp_path, "shop.py")
    listed = ""
    for line in shell.splitlines()[1:]:
        listed = run(tmp_path, "-m", *line.split())
    assert "completed" in listed


def test_the_guide_to_testing_runs() -> None:
    [code] = runnable("docs/guide/testing.md", "python")
    names: dict[str, Any] = {}
    exec(code, names)
    asyncio.run(names["test_a_reminder_is_sent_an_hour_later"]())


@pytest.mark.slow
def test_the_guide_to_the_client_runs(postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        connection.execute("create table orders (id int)")
    with Client(postgres_database) as mq:
        names: dict[str, Any] = {
            "mq": mq,
            "psycopg": psycopg,
            "an_hour_ago": datetime.now(UTC) - timedelta(hours=1),
        }
        for code in runnable("docs/guide/client.md", "python"):
            code = code.replace("postgresql://user@host/database", postgres_database)
            code = code.replace("insert into orders …", "insert into orders values (1001)")
            exec(code, names)
        assert mq.queue("orders").stats().pushed > 100_000


def test_the_guide_to_jobs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [code] = runnable("docs/guide/jobs.md", "python")
    names: dict[str, Any] = {}
    exec(code.replace("job.result(timeout=10), ", ""), names)
    assert list(names["mq"].tasks.schedules)
    names["mq"].close()
