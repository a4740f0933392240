"""Streams from a queue to queues, killed wherever it may be: every message once."""

import json
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from monarq.model import PushItem, StoredMessage
from monarq.store.contract import Store
from tests.server.serving import ServerProcess
from tests.spark.seeding import fill, in_store

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 300.0
_DRIVER = (sys.executable, "-m", "tests.spark.streaming_driver")
EACH_ROUND = 160


class Driver:
    def __init__(self, master: str, url: str, directory: Path) -> None:
        self._log = (directory / "driver.log").open("ab")
        self.process = subprocess.Popen(
            [*_DRIVER, master, url, str(directory / "checkpoints")],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        assert self.process.stdout is not None
        self._said = self.process.stdout

    def wait_until_started(self) -> None:
        assert self._said.readline() == b"started\n", Path(str(self._log.name)).read_text()[-3000:]

    def family(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            own = psutil.Process(self.process.pid)
            return [own, *own.children(recursive=True)]
        return []

    def executors(self) -> list[psutil.Process]:
        return [one for one in self.family() if "CoarseGrainedExecutorBackend" in _command(one)]

    def kill(self) -> None:
        """All of it at once, as when a machine loses its power."""
        family = self.family()
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(family, timeout=WAIT_SECONDS)
        self.process.wait(WAIT_SECONDS)

    def close(self) -> None:
        self.kill()
        self._said.close()
        self._log.close()


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@contextmanager
def driving(master: str, url: str, directory: Path) -> Iterator[Driver]:
    driver = Driver(master, url, directory)
    try:
        yield driver
    finally:
        driver.close()


def drive_to_the_end(master: str, url: str, directory: Path) -> None:
    """Spark may fail by itself on a machine under load; that is one more interruption."""
    for _ in range(3):
        with driving(master, url, directory) as driver:
            if driver.process.wait(WAIT_SECONDS) == 0:
                return
    raise AssertionError((directory / "driver.log").read_text()[-3000:])


def orders(first: int, count: int) -> list[PushItem]:
    """Of every payload there are several."""
    return [
        PushItem("orders", json.dumps({"n": number % 50}).encode(), f"p-{number % 3}")
        for number in range(first, first + count)
    ]


def written(server: ServerProcess) -> int:
    rows = server.get("/api/v1/status/queues").json["queues"]
    return sum(row["messages"]["pushed"] for row in rows if row["name"] != "orders")


def wait_until(happened: Callable[[], bool], driver: Driver) -> None:
    pause = threading.Event()
    for _ in range(int(WAIT_SECONDS * 20)):
        if happened() or driver.process.poll() is not None:
            return
        pause.wait(0.05)
    raise AssertionError("it does not come that far")


def messages_of(url: str, queue: str) -> list[StoredMessage]:
    async def listed(store: Store) -> list[StoredMessage]:
        rows: list[StoredMessage] = []
        after = None
        while True:
            page = await store.list_messages(queue, limit=1000, after=after)
            rows += page.rows
            after = page.next
            if after is None:
                return rows

    found: list[StoredMessage] = in_store(url, listed)
    return found


def assert_every_message_is_there_once(store_url: str, note: str = "") -> None:
    pushed = messages_of(store_url, "orders")
    kept = messages_of(store_url, "kept")
    shuffled = messages_of(store_url, "shuffled")
    found = Counter((one.transaction_id, one.partition, one.payload) for one in kept)
    assert found == Counter(
        (f"orders/{one.partition}/{one.seq}", one.partition, one.payload) for one in pushed
    ), note
    assert Counter(one.payload for one in shuffled) == Counter(one.payload for one in pushed), note


@pytest.mark.slow
def test_a_driver_killed_at_ten_random_points_loses_nothing_and_doubles_nothing(
    broker: ServerProcess, store_url: str, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    for round_number in range(10):
        fill(store_url, orders(round_number * EACH_ROUND, EACH_ROUND))
        with driving("local[2]", broker.url, tmp_path) as driver:
            driver.wait_until_started()
            # Whatever earlier rounds left, and what this one brings, less than all of it.
            missing = 2 * (round_number + 1) * EACH_ROUND - written(broker)
            goal = written(broker) + chance.randrange(max(1, missing))
            wait_until(lambda goal=goal: written(broker) >= goal, driver)  # type: ignore[misc]
            driver.kill()
    drive_to_the_end("local[2]", broker.url, tmp_path)
    assert len(messages_of(store_url, "orders")) == 10 * EACH_ROUND
    assert_every_message_is_there_once(store_url, f"seed {seed}")


@pytest.mark.slow
def test_on_a_cluster_an_executor_and_then_the_driver_are_killed(
    broker: ServerProcess, store_url: str, tmp_path: Path
) -> None:
    """With a shuffle before the sink, where rows come to tasks in any order."""
    fill(store_url, orders(0, 2 * EACH_ROUND))
    master = "local-cluster[2,1,512]"
    with driving(master, broker.url, tmp_path) as driver:
        driver.wait_until_started()
        wait_until(lambda: written(broker) >= EACH_ROUND // 2, driver)
        one, *_ = driver.executors()
        one.kill()
        wait_until(lambda: written(broker) >= 2 * EACH_ROUND, driver)
        assert driver.process.poll() is None
        driver.kill()
    fill(store_url, orders(2 * EACH_ROUND, EACH_ROUND))
    drive_to_the_end(master, broker.url, tmp_path)
    assert_every_message_is_there_once(store_url)
