"""Reading on a cluster of processes, and through an executor's death."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.serving import ServerProcess
from tests.spark.seeding import fill, numbered

ROOT = Path(__file__).parent.parent.parent
SCRIPT = Path(__file__).parent / "reading_on_a_cluster.py"


@pytest.mark.slow
def test_an_executor_killed_while_it_reads_loses_and_doubles_nothing(
    store_url: str, broker: ServerProcess, tmp_path: Path
) -> None:
    count = 30_000
    fill(store_url, numbered("orders", count, partitions=5))
    done = subprocess.run(
        [sys.executable, SCRIPT, broker.url, str(tmp_path / "killed"), str(count)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_DIRS": str(tmp_path / "local")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert (tmp_path / "killed").exists(), "nobody was killed"
    assert done.stdout.split() == [str(count)]
