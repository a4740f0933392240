"""A driver to be killed: archives what is there into a lake, in small commits.

    python -m tests.spark.archive_driver MASTER URL LAKE [STEP]

With STEP it kills itself right before that step, counted over everything it does to files of the
lake. Without, it says at its end how many steps there were. With the variables of a Java process
that runs already (see `JavaProcess`) it uses that one, as whoever was killed before has left it.
"""

import os
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyspark

from monarq.spark import session
from monarq.spark.java import java_home
from monarq.spark.lake import Lake
from monarq.spark.pipelines import archive_plan
from tests.spark.archiving import archiver

COMMIT_MESSAGES = 40
TASK_MESSAGES = 25
_STEPS = frozenset({"open", "os.link", "os.mkdir", "os.remove", "os.rename"})
_WAIT_SECONDS = 300.0


def main(master: str, url: str, root: str, step: str = "") -> None:
    archive_plan.TASK_MESSAGES = TASK_MESSAGES
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        _stop_what_was_left()
    config = {"spark.driver.memory": "512m", "spark.executor.memory": "512m"}
    spark = session(master, config=config)
    lake = Lake.open_or_make(root, store="s")
    steps = _Steps(root, int(step) if step else None)
    sys.addaudithook(steps.count)
    sys.stdout.write("started\n")
    sys.stdout.flush()
    with lake.archiving():
        lake.repair()
        archiver(spark, lake, url, batch_messages=COMMIT_MESSAGES).once()
    sys.stdout.write(f"{steps.done}\n")
    spark.stop()


class _Steps:
    def __init__(self, root: str, last: int | None) -> None:
        self._root = root
        self._last = last
        self.done = 0

    def count(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _STEPS and str(arguments[0]).startswith(self._root):
            self.done += 1
            if self.done == self._last:
                os.kill(os.getpid(), signal.SIGKILL)


def _stop_what_was_left() -> None:
    from pyspark.java_gateway import launch_gateway

    left = launch_gateway().jvm.org.apache.spark.sql.SparkSession.getDefaultSession()
    if left.isDefined():
        left.get().stop()


class JavaProcess:
    """Spark's Java, without a driver; for `with`. Starting it takes most of a driver's start."""

    def __init__(self, directory: Path) -> None:
        told = directory / "java"
        environment = os.environ | {
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told),
            "JAVA_HOME": str(java_home()),
        }
        submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        self._log = (directory / "java.log").open("wb")
        self._process = subprocess.Popen(
            [submit, "--conf", "spark.ui.enabled=false", "pyspark-shell"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
        )
        pause = threading.Event()
        for _ in range(int(_WAIT_SECONDS * 10)):
            if told.exists() or self._process.poll() is not None:
                break
            pause.wait(0.1)
        data = told.read_bytes()
        port, length = struct.unpack(">ii", data[:8])
        self.environment = {
            "PYSPARK_GATEWAY_PORT": str(port),
            "PYSPARK_GATEWAY_SECRET": data[8 : 8 + length].decode(),
        }

    def __enter__(self) -> "JavaProcess":
        return self

    def __exit__(self, *_: object) -> None:
        # It ends when nobody can speak to it any more.
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_WAIT_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
