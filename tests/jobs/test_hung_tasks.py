"""Tasks that do not return in time, and the worker and its process that go on without them."""

import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from monarq.client.async_client import AsyncClient
from monarq.client.client import Client
from monarq.job import JobState
from monarq.jobs.processes import command_line
from monarq.jobs.worker import Worker


@pytest.fixture
async def mq(tmp_path: Path) -> Any:
    async with AsyncClient(f"sqlite:///{tmp_path}/mq.db") as client:
        yield client


async def test_functions_that_hang_do_not_hold_up_the_jobs_behind_them(mq: AsyncClient) -> None:
    may_return = threading.Event()

    @mq.task(retries=0, timeout=0.1, priority=9)
    def hang() -> None:
        may_return.wait()

    @mq.task(retries=0, timeout=20)
    def double(a: int) -> int:
        return 2 * a

    hung = [await hang.enqueue() for _ in range(3)]
    jobs = [await double.enqueue(number) for number in range(5)]
    worker = Worker(mq, mq.tasks.queues, tasks=mq.tasks, burst=True)
    await worker.run()
    assert worker.leaves_running == 3
    may_return.set()
    assert [await job.result() for job in jobs] == [0, 2, 4, 6, 8]
    for job in hung:
        item = await job.item()
        assert (await job.state(), item.error) == (JobState.DEAD, "timed out after 0.1 s")


APP = textwrap.dedent("""
    import time
    from monarq import Client

    mq = Client("sqlite:///mq.db")

    @mq.task(retries=0, timeout=0.2)
    def hang() -> None:
        print("begun")
        time.sleep(600)
""")


def test_a_worker_ends_though_a_function_that_it_gave_up_does_not(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    address = f"sqlite:///{tmp_path}/mq.db"
    with Client(address) as mq:
        job = mq.task(name="app:hang", retries=0, timeout=0.2)(lambda: None).enqueue()
    line = command_line("w-1", ["--store", address, "--app", "app:mq", "--burst"])
    assert line[0] == sys.executable
    done = subprocess.run(
        line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "begun\n", "what it printed is not lost"
    assert "still run, and end with this process" in done.stderr
    with Client(address) as mq:
        assert mq.job(job.id).item().error == "timed out after 0.2 s"
