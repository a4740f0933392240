"""The data source through Spark Connect: the client has a session and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.seeding import fill, numbered

SCRIPT = """
import sys
from monarq.spark.java import java_home
import os
os.environ["JAVA_HOME"] = str(java_home())
from pyspark.sql import SparkSession

url, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert "connect" in type(spark).__module__
options = {"url": url, "queue": "orders"}
frame = spark.read.format("monarq").options(**options).load()
print(frame.count(), frame.filter("partition = 'p-1'").count())
stream = spark.readStream.format("monarq").options(**options, maxMessagesPerTrigger=40).load()
writer = stream.writeStream.format("memory").queryName("orders")
query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()
print(spark.table("orders").select("payload").distinct().count())
spark.stop()
"""


@pytest.mark.slow
def test_a_queue_is_a_table_and_a_stream_for_a_connect_client(
    store_url: str, tmp_path: Path
) -> None:
    fill(store_url, numbered("orders", 100, partitions=4))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, store_url, str(tmp_path / "checkpoint")],
        cwd=tmp_path,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.split() == ["100", "25", "100"]
