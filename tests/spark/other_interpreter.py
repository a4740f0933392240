"""Reads and writes with a driver whose own interpreter is nowhere to be found on the executors.

    python other_interpreter.py STORE_URL

Prints how many messages it read, and how many it wrote.
"""

import sys

from monarq.spark import session


def main(url: str) -> None:
    spark = session("local[1]")
    source = spark.read.format("monarq").option("url", url)
    orders = source.option("queue", "orders").load().select("payload")
    sys.stdout.write(f"{orders.count()}\n")
    copies = orders.write.format("monarq").option("url", url).option("queue", "copies")
    copies.mode("append").save()
    sys.stdout.write(f"{source.option('queue', 'copies').load().count()}\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
