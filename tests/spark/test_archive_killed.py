"""The archive's driver and executors, killed wherever they may be: every message once."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.server.serving import ServerProcess
from tests.spark.archive_driver import JavaProcess
from tests.spark.archiving import expect_messages
from tests.spark.lake_rows import ids_by_pyarrow
from tests.spark.seeding import fill, numbered

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 300.0
EACH_ROUND = 90
ROUNDS = 10


class Driver:
    def __init__(
        self, master: str, url: str, lake: Path, step: int | None, environment: Mapping[str, str]
    ) -> None:
        arguments = [master, url, str(lake), *([str(step)] if step else [])]
        self._log = lake.with_name("driver.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.archive_driver", *arguments],
            cwd=ROOT,
            env=os.environ | dict(environment),
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout

    def wait_until_started(self) -> None:
        assert self.said.readline() == b"started\n", Path(self._log.name).read_text()[-3000:]

    def family(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            own = psutil.Process(self.process.pid)
            return [own, *own.children(recursive=True)]
        return []

    def executors(self) -> list[psutil.Process]:
        found = []
        for one in self.family():
            with suppress(psutil.Error):
                if "CoarseGrainedExecutorBackend" in " ".join(one.cmdline()):
                    found.append(one)
        return found

    def end(self) -> int:
        """How it ended, by itself."""
        code = self.process.wait(WAIT_SECONDS)
        assert code in (0, -signal.SIGKILL), Path(self._log.name).read_text()[-3000:]
        return code

    def close(self) -> None:
        family = self.family()
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(family, timeout=WAIT_SECONDS)
        self.process.wait(WAIT_SECONDS)
        self.said.close()
        self._log.close()


@contextmanager
def driving(
    master: str,
    url: str,
    lake: Path,
    *,
    step: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Driver]:
    driver = Driver(master, url, lake, step, environment or {})
    try:
        driver.wait_until_started()
        yield driver
    finally:
        driver.close()


def wait_until(happened: Callable[[], bool], driver: Driver) -> None:
    pause = threading.Event()
    for _ in range(int(WAIT_SECONDS * 100)):
        if happened() or driver.process.poll() is not None:
            return
        pause.wait(0.01)
    raise AssertionError("it does not come that far")


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
def test_a_driver_killed_at_ten_random_points_loses_nothing_and_doubles_nothing(
    store_url: str, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    lake = tmp_path / "lake"
    killed = 0
    with JavaProcess(tmp_path) as java:

        def drive(step: int | None = None) -> AbstractContextManager[Driver]:
            return driving("local[2]", store_url, lake, step=step, environment=java.environment)

        fill(store_url, numbered("orders", EACH_ROUND, partitions=3))
        with drive() as driver:
            assert driver.end() == 0
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
                    killed += driver.end() == -signal.SIGKILL
            else:
                # While its workers write.
                goal = written_files(lake) + chance.randint(1, 3)
                with drive() as driver:
                    wait_until(lambda goal=goal: written_files(lake) >= goal, driver)  # type: ignore[misc]
                    driver.process.kill()
                    killed += driver.end() == -signal.SIGKILL
            expect_nothing_twice(lake, f"seed {seed}")
        with drive() as driver:
            assert driver.end() == 0
    expect_messages(lake, store_url)


@pytest.mark.slow
def test_an_executor_and_then_the_whole_cluster_killed_lose_nothing_and_double_nothing(
    broker: ServerProcess, store_url: str, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    master = "local-cluster[2,1,512]"
    fill(store_url, numbered("orders", 200, partitions=3))
    with driving(master, broker.url, lake) as driver:
        wait_until(lambda: len(driver.executors()) == 2 and written_files(lake) > 0, driver)
        kill_one_of(driver.executors())
        wait_until(lambda: written_files(lake) > 5, driver)
    expect_nothing_twice(lake)
    fill(store_url, numbered("orders", 100, partitions=3, first=200))
    with driving(master, broker.url, lake) as driver:
        wait_until(lambda: len(driver.executors()) == 2, driver)
        kill_one_of(driver.executors())
        assert driver.end() == 0
    expect_messages(lake, store_url)
