"""A driver to be killed: follows the queue `orders` and writes it to two others.

    python -m tests.spark.streaming_driver MASTER URL CHECKPOINTS

To `kept` with the identity of every message, and to `shuffled` without it, after a shuffle. Ends
when all that is there now has been written.
"""

import sys

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from monarq.spark import session
from tests.spark.streams import begin

BATCH = 40


def main(master: str, url: str, checkpoints: str) -> None:
    config = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"}
    if master.startswith("local-cluster"):
        config |= {"spark.executor.memory": "512m", "spark.task.maxFailures": "8"}
    spark = session(master, config=config)
    orders = (
        spark.readStream.format("monarq")
        .options(url=url, queue="orders", maxMessagesPerTrigger=str(BATCH))
        .load()
    )

    def write(frame: DataFrame, queue: str) -> StreamingQuery:
        return begin(
            frame.writeStream.format("monarq")
            .options(url=url, queue=queue, retrySeconds="300", messagesPerRequest="15")
            .option("checkpointLocation", f"{checkpoints}/{queue}")
            .trigger(availableNow=True)
        )

    queries = [
        write(orders.select("queue", "partition", "seq", "payload"), "kept"),
        write(orders.select("payload").repartition(3), "shuffled"),
    ]
    sys.stdout.write("started\n")
    sys.stdout.flush()
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
