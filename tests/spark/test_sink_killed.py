"""Streams from a queue to queues, killed wherever it may be: every message once."""

import json
import random
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from monarq.model import PushItem
from tests.server.serving import ServerProcess
from tests.spark.driver_process import WAIT_SECONDS, Driver, driving
from tests.spark.seeding import fill, messages_of

EACH_ROUND = 160
ROUNDS = 4


def streaming(master: str, url: str, directory: Path) -> AbstractContextManager[Driver]:
    checkpoints = str(directory / "checkpoints")
    module, log = "tests.spark.streaming_driver", directory / "driver.log"
    return driving(Driver(module, master, url, checkpoints, log=log))


def drive_to_the_end(master: str, url: str, directory: Path) -> None:
    """Spark may fail by itself on a machine under load; that is one more interruption."""
    for _ in range(3):
        with streaming(master, url, directory) as driver:
            if driver.process.wait(WAIT_SECONDS) == 0:
                return
    raise AssertionError(driver.complaints)


def orders(first: int, count: int) -> list[PushItem]:
    """Of every payload there are several."""
    return [
        PushItem("orders", json.dumps({"n": number % 50}).encode(), f"p-{number % 3}")
        for number in range(first, first + count)
    ]


def written(server: ServerProcess) -> int:
    rows = server.get("/api/v1/status/queues").json["queues"]
    return sum(row["messages"]["pushed"] for row in rows if row["name"] != "orders")


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
def test_a_driver_killed_at_random_points_loses_nothing_and_doubles_nothing(
    broker: ServerProcess, store_url: str, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    for round_number in range(ROUNDS):
        fill(store_url, orders(round_number * EACH_ROUND, EACH_ROUND))
        with streaming("local[2]", broker.url, tmp_path) as driver:
            driver.wait_until_started()
            # Whatever earlier rounds left, and what this one brings, less than all of it.
            missing = 2 * (round_number + 1) * EACH_ROUND - written(broker)
            goal = written(broker) + chance.randrange(max(1, missing))
            driver.wait_until(lambda goal=goal: written(broker) >= goal)  # type: ignore[misc]
            driver.kill()
    drive_to_the_end("local[2]", broker.url, tmp_path)
    assert len(messages_of(store_url, "orders")) == ROUNDS * EACH_ROUND
    assert_every_message_is_there_once(store_url, f"seed {seed}")


@pytest.mark.slow
def test_on_a_cluster_an_executor_and_then_the_driver_are_killed(
    broker: ServerProcess, store_url: str, tmp_path: Path
) -> None:
    """With a shuffle before the sink, where rows come to tasks in any order."""
    fill(store_url, orders(0, 2 * EACH_ROUND))
    master = "local-cluster[2,1,512]"
    with streaming(master, broker.url, tmp_path) as driver:
        driver.wait_until_started()
        driver.wait_until(lambda: written(broker) >= EACH_ROUND // 2)
        one, *_ = driver.executors()
        one.kill()
        driver.wait_until(lambda: written(broker) >= 2 * EACH_ROUND)
        assert driver.process.poll() is None
        driver.kill()
    fill(store_url, orders(2 * EACH_ROUND, EACH_ROUND))
    drive_to_the_end(master, broker.url, tmp_path)
    assert_every_message_is_there_once(store_url)
