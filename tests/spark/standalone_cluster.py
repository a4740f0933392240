"""A standalone Spark cluster of real processes: a master and workers with one core each."""

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pyspark

from monarq.spark.java import java_home

_WAIT_SECONDS = 300.0
_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_DEPLOY = "org.apache.spark.deploy"
_ANYWHERE = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")


@contextmanager
def standalone_cluster(directory: Path, workers: int) -> Iterator[str]:
    """The URL of its master, once all workers are there."""
    with ExitStack() as stack:
        master = stack.enter_context(_running(directory / "master.log", "master.Master"))
        url = master.wait_for(r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            arguments = ["--cores", "1", "--memory", "600m", "--work-dir", str(directory), url]
            log = directory / f"worker-{number}.log"
            worker = stack.enter_context(_running(log, "worker.Worker", *arguments))
            worker.wait_for("Successfully registered with master")
        yield url


class _Process:
    def __init__(self, log: Path, process: subprocess.Popen[bytes]) -> None:
        self._log = log
        self.process = process

    def wait_for(self, pattern: str) -> str:
        pause = threading.Event()
        for _ in range(int(_WAIT_SECONDS * 10)):
            if found := re.search(pattern, self._log.read_text()):
                return found[found.re.groups]
            if self.process.poll() is not None:
                break
            pause.wait(0.1)
        raise AssertionError(self._log.read_text()[-3000:])


@contextmanager
def _running(log: Path, name: str, *arguments: str) -> Iterator[_Process]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [_CLASS, f"{_DEPLOY}.{name}", *_ANYWHERE, *arguments],
            env=os.environ
            | {
                "JAVA_HOME": str(java_home()),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_DAEMON_MEMORY": "256m",
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            yield _Process(log, process)
        finally:
            family = psutil.Process(process.pid).children(recursive=True)
            for one in family:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            process.kill()
            process.wait(_WAIT_SECONDS)
            psutil.wait_procs(family, timeout=_WAIT_SECONDS)
