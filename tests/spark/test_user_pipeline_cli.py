"""`monarq pipeline run`, as far as it comes without Spark."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PIPELINE = """
name = "copy"

[sources.orders]
queue = "orders"

[sinks.out]
from = "orders"
queue = "copy"
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "monarq", "pipeline", "run", *arguments],
        cwd=folder,
        env=os.environ | {"XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_file_is_checked_without_spark(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(PIPELINE)
    done = run(tmp_path, "p.toml", "--check", "--json")
    assert json.loads(done.stdout) == {"name": "copy", "valid": True}
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("none.toml",), "none.toml cannot be read"),
        (("wrong.toml", "--check"), "wrong.toml: sinks.out.from: there is no 'ordrs'"),
        (("p.toml", "--once"), "--once is for a pipeline with mode"),
        (("p.toml", "--store", "sqlite:///none.db"), "none.db"),
        (("p.toml", "--url", "http://127.0.0.1:9"), "http://127.0.0.1:9"),
        (("p.toml", "--conf", "x=1", "--url", "http://127.0.0.1:9"), "spark.NAME=VALUE"),
    ],
)
def test_a_mistake_is_one_line_and_spark_is_not_started(
    tmp_path: Path, arguments: tuple[str, ...], wrong: str
) -> None:
    (tmp_path / "p.toml").write_text(PIPELINE)
    (tmp_path / "wrong.toml").write_text(PIPELINE.replace('"orders"\nqueue = "copy"', '"ordrs"'))
    done = run(tmp_path, *arguments)
    assert done.returncode != 0
    assert wrong in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2
    assert not done.stdout
