"""Reads a queue on a cluster of two executors, one of which is killed in the middle.

    python reading_on_a_cluster.py URL MARKER COUNT

The first task that gets a row while there is no file MARKER makes it and kills the
executor that it runs in. Prints how many different messages came, and fails if any came twice.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame
from pyspark.sql.functions import udf

from monarq.spark import session

SCHEMA = "queue string, partition string, seq bigint, payload string"


def deadly(marker: str) -> Any:
    """A condition that always holds, once it has killed."""

    def holds(seq: int) -> bool:
        try:
            with Path(marker).open("x"):
                pass
        except FileExistsError:
            return True
        executor = next(one for one in psutil.Process().parents() if one.name() == "java")
        os.kill(executor.pid, signal.SIGKILL)
        return True

    return udf(holds, "boolean", useArrow=False)


def check(frame: DataFrame, count: int) -> None:
    rows = [tuple(row) for row in frame.collect()]
    payloads = {row[3] for row in rows}
    assert len(rows) == len(set(rows)), "some came twice"
    assert payloads == {f'{{"n": {number}}}' for number in range(count)}
    sys.stdout.write(f"{len(rows)}\n")


def main(url: str, marker: str, count: int) -> None:
    spark = session(
        "local-cluster[2,1,700]",
        config={
            "spark.executor.memory": "600m",
            "spark.driver.memory": "600m",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    options = {"url": url, "queue": "orders", "minSplits": "8"}
    frame = spark.read.format("monarq").options(**options).schema(SCHEMA).load()
    check(frame.filter(deadly(marker)("seq")), count)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
