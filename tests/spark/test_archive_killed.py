"""The archive's driver and executors, killed wherever they may be: every message once."""

import random
import signal
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.server.serving import ServerProcess
from tests.spark.archive_driver import JavaProcess
from tests.spark.archiving import expect_messages
from tests.spark.driver_process import WAIT_SECONDS, Driver, driving
from tests.spark.lake_rows import ids_by_pyarrow
from tests.spark.seeding import fill, numbered

EACH_ROUND = 90
ROUNDS = 4


@contextmanager
def archiving(
    master: str,
    url: str,
    lake: Path,
    *,
    step: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Driver]:
    arguments = [master, url, str(lake), *([str(step)] if step else [])]
    log = lake.with_name("driver.log")
    module = "tests.spark.archive_driver"
    with driving(Driver(module, *arguments, log=log, environment=environment)) as driver:
        driver.wait_until_started()
        yield driver


def end(driver: Driver) -> int:
    """How it ended, by itself."""
    code = driver.process.wait(WAIT_SECONDS)
    assert code in (0, -signal.SIGKILL), driver.complaints
    return code


def kill_one_of(executors: list[psutil.Process]) -> None:
    """None is left if the driver was quick."""
    for one in executors[:1]:
        with suppress(psutil.NoSuchProcess):
            one.kill()


def written_files(lake: Path) -> int:
    return sum(1 for _ in (lake / "_files").rglob("*.parquet"))


def expect_nothing_twice(lake: Path, note: str = "") -> None:
    """In whatever state a kill has left it."""
    seen = ids_by_pyarrow(lake)
    assert len(seen) == len(set(seen)), note


@pytest.mark.slow
def test_a_driver_killed_at_random_points_loses_nothing_and_doubles_nothing(
    store_url: str, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    lake = tmp_path / "lake"
    killed = 0
    with JavaProcess(tmp_path) as java:

        def drive(step: int | None = None) -> AbstractContextManager[Driver]:
            return archiving("local[2]", store_url, lake, step=step, environment=java.environment)

        fill(store_url, numbered("orders", EACH_ROUND, partitions=3))
        with drive() as driver:
            assert end(driver) == 0
            steps = int(driver.said.read())
        assert steps > 20
        number = 0
        while killed < ROUNDS:
            number += 1
            # On a busy machine, one may be done before it is killed.
            assert number < 3 * ROUNDS
            fill(store_url, numbered("orders", EACH_ROUND, partitions=3, first=number * EACH_ROUND))
            if number % 2:
                # Between any two things that it does to the lake.
                with drive(chance.randint(1, steps)) as driver:
                    killed += end(driver) == -signal.SIGKILL
            else:
                # While its workers write.
                goal = written_files(lake) + chance.randint(1, 3)
                with drive() as driver:
                    driver.wait_until(lambda goal=goal: written_files(lake) >= goal)  # type: ignore[misc]
                    driver.process.kill()
                    killed += end(driver) == -signal.SIGKILL
            expect_nothing_twice(lake, f"seed {seed}")
        with drive() as driver:
            assert end(driver) == 0
    expect_messages(lake, store_url)


@pytest.mark.slow
def test_an_executor_and_then_the_whole_cluster_killed_lose_nothing_and_double_nothing(
    broker: ServerProcess, store_url: str, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    master = "local-cluster[2,1,512]"
    fill(store_url, numbered("orders", 200, partitions=3))
    with archiving(master, broker.url, lake) as driver:
        driver.wait_until(lambda: len(driver.executors()) == 2 and written_files(lake) > 0)
        kill_one_of(driver.executors())
        driver.wait_until(lambda: written_files(lake) > 5)
    expect_nothing_twice(lake)
    fill(store_url, numbered("orders", 100, partitions=3, first=200))
    with archiving(master, broker.url, lake) as driver:
        driver.wait_until(lambda: len(driver.executors()) == 2)
        kill_one_of(driver.executors())
        assert end(driver) == 0
    expect_messages(lake, store_url)
