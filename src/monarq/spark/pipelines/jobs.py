"""Tasks on Spark's workers: each is done once and answers with a list, whatever fails on the way.

One task is one Spark partition, so that a worker that dies costs one task. Which attempt of a task
counts is Spark's to say: only answers of those that ended are given back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from monarq.spark.failures import spark_failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
A = TypeVar("A")
_LOOK_SECONDS = 0.25


class _Run(Generic[T, A]):
    """Goes to the workers, pickled: the function by its name, the tasks as they are."""

    def __init__(self, function: Callable[[T, str], Sequence[A]], tasks: Sequence[T]) -> None:
        self._function = function
        self._tasks = tasks

    def __call__(self, numbers: Iterable[int]) -> Iterator[A]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = 0 if context is None else context.taskAttemptId()
        for number in numbers:
            yield from self._function(self._tasks[number], f"{number}.{attempt}")


def run_tasks(
    spark: Callable[[], SparkSession],
    function: Callable[[T, str], Sequence[A]],
    tasks: Sequence[T],
    *,
    ended: Callable[[int], None] | None = None,
) -> list[A]:
    """`function(task, name)` for each task, in any order, at most as many at once as Spark has
    cores. The names of two attempts differ. `ended` is told now and then how many have ended."""
    if not tasks:
        return []
    count = len(tasks)
    with spark_failures():
        session = spark()
        with _Watch(session, ended):
            numbers = session.sparkContext.parallelize(range(count), count)
            return numbers.mapPartitions(_Run(function, tasks)).collect()


class _Watch:
    """Counts the tasks of a job that have ended, while it runs."""

    def __init__(self, spark: SparkSession, ended: Callable[[int], None] | None) -> None:
        self._spark = spark
        self._ended = ended
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        if self._ended is None:
            return
        tracker = self._spark.sparkContext.statusTracker()
        known = set(tracker.getJobIdsForGroup())

        def look() -> None:
            while not self._over.wait(_LOOK_SECONDS):
                jobs = set(tracker.getJobIdsForGroup()) - known
                infos = [tracker.getJobInfo(job) for job in jobs]
                stages = [
                    tracker.getStageInfo(stage)
                    for info in infos
                    if info is not None
                    for stage in info.stageIds
                ]
                assert self._ended is not None
                self._ended(sum(stage.numCompletedTasks for stage in stages if stage is not None))

        self._thread = threading.Thread(target=look, daemon=True, name="monarq-progress")
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
