"""Measures Spark on Monarq: reads and writes beside JDBC and Parquet, streams, planning, archive.

    ./dev bench spark                       1 M messages of 200 bytes, local[2]
    ./dev bench spark --quick               little data, rough figures
    ./dev bench spark --parts read,latency  some of it

Everything runs on this machine: PostgreSQL, a broker and Spark. JDBC reads and writes a table with
the same messages, a row each, in the same PostgreSQL, as well as it can (partitioned, fetch size
10,000; rewritten inserts). Its driver is Debian's libpostgresql-jdbc-java.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from bench import spark_data, spark_latency
from bench.bars import Bars
from bench.harness import Rounds, Side, machine, progress, rate, table, take_turns, write_json
from bench.served import served
from monarq.spark import session
from monarq.spark.access import open_access
from monarq.spark.lake import Lake
from monarq.spark.pipelines.archive import ArchiveOptions, Archiver
from monarq.spark.pipelines.place import Place
from monarq.spark.source import MonarqSource
from monarq.store import open_store

PACKAGES = ("pyspark", "pyarrow", "msgspec", "asyncpg", "uvloop")
PARTS = ("read", "write", "stream", "plan", "archive", "latency")
JAR = Path("/usr/share/java/postgresql.jar")
CORES = 2
READ_BARS = {"postgres": 1.3, "http": 0.8, "sqlite": 1.0}
STREAM_ROWS = 10_000
MANY_PARTITIONS = 100_000


class Bench:
    def __init__(
        self, spark: SparkSession, urls: Mapping[str, str], folder: Path, options: Any
    ) -> None:
        self.spark = spark
        self.urls = urls
        self.folder = folder
        self.messages: int = options.messages
        self.rounds: int = options.rounds
        self.many: int = options.partitions
        self.seconds: float = options.seconds
        self.bars = Bars()
        self.figures: dict[str, Any] = {}
        self.tables: dict[str, Rounds] = {}

    # --- reading -----------------------------------------------------------------------------

    async def read(self) -> None:
        parquet = str(self.folder / "parquet")
        self._monarq("postgres").load().write.parquet(parquet)
        frames: dict[str, Callable[[], DataFrame]] = {
            "parquet": lambda: self.spark.read.parquet(parquet),
            "jdbc": self._jdbc_rows,
            **{way: self._monarq(way).load for way in READ_BARS},
        }
        found = await take_turns(
            [self._side(name, self._drained(make)) for name, make in frames.items()],
            rounds=self.rounds,
        )
        self.tables["read"] = found
        for way, wanted in READ_BARS.items():
            ratio = found.times_faster([way], ["jdbc"])
            self.bars.at_least(f"read {way} of tuned JDBC", ratio, wanted)

    def _monarq(self, way: str, queue: str = spark_data.QUEUE) -> DataFrameReader:
        reader = self.spark.read.format("monarq")
        return reader.option("url", self.urls[way]).option("queue", queue)

    def _jdbc_rows(self) -> DataFrame:
        return (
            self.spark.read.format("jdbc")
            .options(
                url=spark_data.jdbc_url(self.urls["postgres"]),
                dbtable=spark_data.ROWS_TABLE,
                driver="org.postgresql.Driver",
                partitionColumn="id",
                lowerBound="1",
                upperBound=str(self.messages),
                numPartitions=str(2 * CORES),
                fetchsize="10000",
            )
            .load()
            .drop("id")
        )

    def _drained(self, make: Callable[[], DataFrame]) -> Callable[[], None]:
        return lambda: make().write.format("noop").mode("overwrite").save()

    # --- writing -----------------------------------------------------------------------------

    async def write(self) -> None:
        count = self.messages // 2
        source = str(self.folder / "to-write")
        frame = self._monarq("postgres").load().limit(count)
        frame.select("transaction_id", "partition", "payload").write.parquet(source)
        rows = self.spark.read.parquet(source)

        def by_jdbc() -> None:
            rows.write.format("jdbc").options(
                url=spark_data.jdbc_url(self.urls["postgres"], reWriteBatchedInserts="true"),
                dbtable=f"written_{uuid.uuid4().hex}",
                driver="org.postgresql.Driver",
                batchsize="10000",
            ).mode("append").save()

        def by_broker() -> None:
            rows.write.format("monarq").options(
                url=self.urls["http"],
                queue=f"written-{uuid.uuid4().hex}",
                partitionColumn="partition",
                transactionIdColumn="transaction_id",
            ).mode("append").save()

        found = await take_turns(
            [self._side("jdbc write", by_jdbc), self._side("http write", by_broker)],
            rounds=self.rounds,
        )
        self.tables["write"] = found
        ratio = found.times_faster(["http write"], ["jdbc write"])
        self.bars.at_least("write through the broker of JDBC", ratio, 0.5)

    # --- streams, planning, archive --------------------------------------------------------------

    async def stream(self) -> None:
        """Batches of 10,000 messages beside batches of one, which cost what an empty one would."""
        async with await open_store(self.urls["postgres"]) as store:
            await spark_data.fill(store, 20, 200, own_ids=False, queue="few")
        large = self._batches(spark_data.QUEUE, STREAM_ROWS)
        small = self._batches("few", 1)
        self.figures["microbatch_ms"] = {"of 10,000": large, "of 1": small}
        extra = statistics.median(large) - statistics.median(small)
        self.bars.at_most("micro-batch of 10,000, ms more", extra, 250)

    def _batches(self, queue: str, rows: int) -> list[float]:
        """Milliseconds of each, without the first, which warms up."""
        stream = (
            self.spark.readStream.format("monarq")
            .options(url=self.urls["http"], queue=queue, startingOffsets="earliest")
            .option("maxMessagesPerTrigger", rows)
            .load()
        )
        checkpoint = str(self.folder / f"checkpoint-{uuid.uuid4().hex}")
        query = (
            stream.writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [
            float(batch["durationMs"]["triggerExecution"])
            for batch in query.recentProgress[1:]
            if batch["numInputRows"]
        ]

    async def plan(self) -> None:
        async with await open_store(self.urls["postgres"]) as store:
            await spark_data.fill_partitions(store, self.many, "many")

        def planned(way: str) -> float:
            source = MonarqSource({"url": self.urls[way], "queue": "many"})
            started = time.perf_counter()
            splits = source.reader(source.schema()).partitions()
            took = time.perf_counter() - started
            assert splits
            return took

        for way in ("postgres", "http"):
            took = [planned(way) for _ in range(3)]
            name = f"plan {self.many:,} partitions by {way}, s"
            self.bars.at_most(name, statistics.median(took), 2.0)

    async def archive(self) -> None:
        def run() -> float:
            lake = Lake.open_or_make(self.folder / f"lake-{uuid.uuid4().hex}", store="bench")
            options = ArchiveOptions(queues=[spark_data.QUEUE], tables=["messages"])
            started = time.perf_counter()
            with lake.archiving():
                archiver = Archiver(
                    lambda: self.spark, lake, Place(self.urls["http"]), options, run="bench"
                )
                assert archiver.once() == self.messages
            return time.perf_counter() - started

        took = run()
        self.bars.at_most(f"archive {self.messages:,} messages, s", took, 30.0)

    async def latency(self) -> None:
        """In turns, so that whatever else the machine does falls on both alike."""
        ratios = []
        for _ in range(max(3, self.rounds)):
            alone = await spark_latency.measure(self.urls["http"], self.seconds, 0)
            beside = await spark_latency.measure(self.urls["http"], self.seconds, 1)
            ratios.append(spark_latency.p99(beside) / spark_latency.p99(alone))
            figures = self.figures.setdefault("push_p99_ms", [])
            figures.append(
                {
                    "alone": round(1000 * spark_latency.p99(alone), 3),
                    "during an export": round(1000 * spark_latency.p99(beside), 3),
                }
            )
        self.bars.at_most("p99 of a push during an export", statistics.median(ratios), 2)

    # --- reporting -----------------------------------------------------------------------------

    def _side(self, name: str, run: Callable[[], None]) -> Side:
        # On this thread: Spark finds Python's data sources by the session of the thread.
        async def side() -> dict[str, float]:
            started = time.perf_counter()
            run()
            took = time.perf_counter() - started
            progress(f"  {name}: {took:.2f} s")
            return {name: took}

        return side

    def shown(self) -> str:
        lines = []
        for part, rounds in self.tables.items():
            count = self.messages if part == "read" else self.messages // 2
            names = rounds.as_json()[0]
            rows = [
                (name, f"{rounds.seconds(name):.2f}", rate(count, rounds.seconds(name)))
                for name in names
            ]
            lines.append(table((part, "s", "rows/s"), rows))
        lines.append(self.bars.table())
        return "\n\n".join(lines)


async def run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="monarq-bench-") as name, spark_data.postgres() as dsn:
        folder = Path(name)
        file = folder / "store.db"
        progress(f"filling both stores with {options.messages:,} messages")
        await spark_data.fill_stores(
            dsn, file, options.messages, options.size, own_ids=options.own_ids
        )
        await spark_data.make_rows(dsn)
        async with served(dsn) as broker:
            urls = {"postgres": dsn, "sqlite": f"sqlite:///{file}", "http": broker.url}
            spark = _session(options.jdbc_jar, folder)
            bench = Bench(spark, urls, folder, options)
            try:
                for part in options.parts:
                    progress(part)
                    await getattr(bench, part)()
            finally:
                spark.stop()
                for url in urls.values():
                    open_access(url).close()
            bench.figures["broker_mib"] = round(broker.most_memory / 2**20)
    print(bench.shown())
    _write(bench, options)


def _session(jar: Path, folder: Path) -> SparkSession:
    return session(
        f"local[{CORES}]",
        app_name="monarq-bench",
        config={
            "spark.jars": str(jar),
            "spark.driver.memory": "3g",
            "spark.local.dir": str(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
    )


def _write(bench: Bench, options: argparse.Namespace) -> None:
    content = {
        "machine": machine(PACKAGES),
        "settings": {
            "messages": options.messages,
            "size": options.size,
            "ids": "of the caller" if options.own_ids else "of the store",
            "master": f"local[{CORES}]",
            "rounds": options.rounds,
        },
        "seconds": {part: rounds.as_json() for part, rounds in bench.tables.items()},
        "figures": bench.figures,
        "bars": bench.bars.as_json(),
    }
    progress(f"written to {write_json('spark', content, options.json)}")


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench spark", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="little data, rough figures")
    parser.add_argument("--messages", type=int)
    parser.add_argument("--size", type=int, default=200, help="bytes of a payload")
    parser.add_argument("--own-ids", action="store_true", help="push with transaction ids")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--parts", default=",".join(PARTS), help="some of %(default)s")
    parser.add_argument("--jdbc-jar", type=Path, default=JAR)
    parser.add_argument("--json", type=Path, help="where the results go")
    options = parser.parse_args()
    options.messages = options.messages or (100_000 if options.quick else 1_000_000)
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.partitions = MANY_PARTITIONS // 10 if options.quick else MANY_PARTITIONS
    options.seconds = 3.0 if options.quick else 10.0
    options.parts = options.parts.split(",")
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there are the parts {', '.join(PARTS)}, not {', '.join(unknown)}")
    if not options.jdbc_jar.is_file():
        parser.error(
            f"{options.jdbc_jar} is not there: apt-get install libpostgresql-jdbc-java, or say "
            "where PostgreSQL's JDBC driver is with --jdbc-jar"
        )
    return options


if __name__ == "__main__":
    asyncio.run(run(_parsed()))
