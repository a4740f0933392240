"""One Spark session for all tests of a process, and the ways to reach the same queues.

    def test_something(spark: SparkSession, store_url: str) -> None:
        fill(store_url, [PushItem(queue="orders", payload=b"1")])
        frame = spark.read.format("monarq").options(url=store_url, queue="orders").load()

A test that needs a session of its own kind (a cluster, Connect) runs it in another process.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from monarq.spark import session
from monarq.spark.access import Access, open_access
from tests.cli.invoking import Invoke
from tests.postgres_server import fresh_database
from tests.server.serving import ServerProcess
from tests.spark.seeding import Urls

#: Spark Connect needs packages of its own: pip install 'pyspark[connect]'.
collect_ignore = [] if find_spec("grpc") and find_spec("pandas") else ["test_connect.py"]

#: Of every Java that a test starts, its own or by a driver: most live for seconds, and spend them
#: on verifying and optimising code that they never run again.
_SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
for _kind in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(_kind, _SHORT_LIVED)
os.environ.setdefault(
    "PYSPARK_SUBMIT_ARGS",
    f"--conf 'spark.executor.extraJavaOptions={_SHORT_LIVED}' pyspark-shell",
)
os.environ["PYTHON_OF_TESTS"] = sys.executable
for _kind in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
    os.environ.setdefault(_kind, str(Path(__file__).with_name("compiled_python")))

SPARK_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.python.worker.reuse": "true",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores; shared, so a test that changes a setting puts it back."""
    place = tmp_path_factory.mktemp("spark")
    made = session(
        "local[2]",
        app_name="monarq-tests",
        config=SPARK_SETTINGS
        | {"spark.local.dir": str(place), "spark.sql.warehouse.dir": str(place / "warehouse")},
    )
    yield made
    made.stop()


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """A SQLite file of this test's own; made by the first who writes to it."""
    return f"sqlite:///{tmp_path / 'monarq.db'}"


@pytest.fixture
def cli(tmp_path: Path, store_url: str) -> Invoke:
    """The command line in this process, on `store_url`; its pipelines use the session above."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("MONARQ_")}
    return Invoke(
        kept
        | {
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "XDG_DATA_HOME": str(tmp_path / "data"),
            "MONARQ_STORE": store_url,
            "COLUMNS": "200",
        }
    )


@pytest.fixture
def broker(store_url: str, tmp_path: Path) -> Iterator[ServerProcess]:
    """A broker on `store_url`, in a process of its own."""
    with ServerProcess({"store": store_url, "data_dir": str(tmp_path / "broker")}) as server:
        yield server


@pytest.fixture
async def postgres_urls(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Urls]:
    """A PostgreSQL database of this test's own, and a broker on it."""
    async with fresh_database(postgres_dsn) as dsn:
        settings = {"store": dsn, "data_dir": str(tmp_path / "broker")}
        server = await asyncio.to_thread(ServerProcess(settings).__enter__)
        try:
            yield Urls(store=dsn, broker=server.url)
        finally:
            await asyncio.to_thread(server.end)


@pytest.fixture
def opened() -> Iterator[Callable[..., Access]]:
    """Opens ways that are closed when the test ends."""
    made: list[Access] = []

    def opening(url: str, **options: Any) -> Access:
        access = open_access(url, **options)
        made.append(access)
        return access

    yield opening
    for access in made:
        access.close()


@pytest.fixture(params=["sqlite", "postgres"])
def urls(request: pytest.FixtureRequest) -> Urls:
    """A store, and a broker on it."""
    if request.param == "postgres":
        found: Urls = request.getfixturevalue("postgres_urls")
        return found
    broker: ServerProcess = request.getfixturevalue("broker")
    return Urls(store=request.getfixturevalue("store_url"), broker=broker.url)
