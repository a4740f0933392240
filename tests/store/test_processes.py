"""Real processes on one store, some of them killed: nothing is lost, doubled or out of order.

Each process logs what it was answered (`process_roles`); at the end the logs and the store must
tell one consistent history (`history`).
"""

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from monarq.clock import SystemClock
from monarq.model import DEFAULT_GROUP, DeadLetterFilter, ItemState, QueueKind, StartFrom
from monarq.store import Store, open_store
from tests.shared_postgres import POSTGRES_NAMES
from tests.store.conftest import Place
from tests.store.history import History, Outcome, read_logs
from tests.store.process_roles import Part
from tests.store.scenarios import every

PROJECT = Path(__file__).parents[2]

#: Far more than a run takes; a run that hangs ends here.
PATIENCE_SECONDS = 60
DEATHS = 2
GROUPS = ("left", "right")
PARTITIONS = ("p1", "p2", "p3")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("place", ["sqlite", POSTGRES_NAMES[-1]], indirect=True),
]


class Crew:
    """Starts processes, and starts those again that killed themselves."""

    def __init__(self, place: Place, directory: Path) -> None:
        self.place = place
        self.directory = directory
        self.stop = directory / "stop"
        self.running: dict[str, tuple[subprocess.Popen[bytes], Part, int]] = {}
        self.kills = 0
        self._random = random.Random(7)

    def start(self, name: str, deaths: int = 0, **fields: Any) -> None:
        """One process, which dies so many times before it lives to the end."""
        part = Part(
            address=self.place.address,
            schema=self.place.schema,
            log=str(self.directory / f"{name}.log"),
            stop=str(self.stop),
            seed=self._random.getrandbits(32),
            dies_after=self._random.uniform(0.1, 0.8) if deaths else None,
            dies_holding=0.1 if deaths else 0.0,
            **fields,
        )
        told = msgspec.json.encode(part).decode()
        with (self.directory / f"{name}.err").open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.store.process_roles", told],
                cwd=PROJECT,
                stdin=subprocess.DEVNULL,
                stderr=errors,
            )
        self.running[name] = (process, part, deaths)

    def supervise(self) -> None:
        """Note who has ended; whoever was killed goes on, with its deaths counted down."""
        for name, (process, part, deaths) in list(self.running.items()):
            code = process.poll()
            if code is None:
                continue
            del self.running[name]
            if code == -signal.SIGKILL:
                self.kills += 1
                told = {
                    field: getattr(part, field)
                    for field in ("role", "queue", "group", "partitions", "count", "lease_seconds")
                }
                self.start(name, max(0, deaths - 1), **told)
            else:
                assert code == 0, (self.directory / f"{name}.err").read_text()

    async def work_until(self, is_done: Callable[[], Awaitable[bool]]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            self.supervise()
            pushing = any(part.role == "push" for _, part, _ in self.running.values())
            if not pushing and await is_done():
                break
            assert time.monotonic() < deadline, "it is not done in time"
            await asyncio.sleep(0.05)
        self.stop.touch()
        while self.running:
            self.supervise()
            assert time.monotonic() < deadline, f"{list(self.running)} do not end"
            await asyncio.sleep(0.02)

    def end(self) -> None:
        for process, _, _ in self.running.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait(10)


@pytest.fixture
def crew(place: Place, tmp_path: Path) -> Iterator[Crew]:
    directory = tmp_path / "logs"
    directory.mkdir()
    crew = Crew(place, directory)
    yield crew
    crew.end()


@pytest.fixture
async def real_time_store(place: Place) -> Any:
    async with await open_store(place.address, clock=SystemClock(), schema=place.schema) as opened:
        yield opened


async def test_ordered_messages_survive_the_death_of_their_consumers(
    real_time_store: Store, crew: Crew
) -> None:
    store = real_time_store
    await store.configure("q", options={"retryLimit": 4, "retryDelay": 20})
    for group in GROUPS:
        await store.subscribe(group, StartFrom.ALL, queue="q")
    for name in ("one", "two"):
        # Both push the same ids, as a client does that did not hear the answer.
        partitions = list(PARTITIONS)
        crew.start(name, 1, role="push", queue="q", partitions=partitions, count=300)
    for group in GROUPS:
        for number in range(2):
            crew.start(f"{group}-{number}", DEATHS, role="consume", queue="q", group=group)

    async def is_done() -> bool:
        await store.lifecycle()
        return all(row.lag == 0 for row in (await store.list_groups(queue="q")).rows)

    await crew.work_until(is_done)

    history = History(read_logs(crew.directory))
    messages = await every(store.list_messages, "q")
    history.check_pushes((m.partition_id, m.seq, m.transaction_id) for m in messages)
    assert crew.kills >= 2, "nobody was killed: this run has shown nothing"
    assert len(messages) == 300
    for row in (await store.list_groups(queue="q")).rows:
        letters = await every(store.list_dead_letters, DeadLetterFilter(queue="q", group=row.name))
        dead = [(letter.partition_id, letter.seq) for letter in letters]
        outcome = Outcome(row.name, row.completed, dead)
        history.check_outcome(outcome, {(m.partition_id, m.seq) for m in messages})
        history.check_order(outcome)
        history.check_leases_of_partitions(row.name)
        assert row.dead == len(dead)


async def test_items_are_done_once_whoever_dies_on_them(real_time_store: Store, crew: Crew) -> None:
    store = real_time_store
    options = {"maxAttempts": 5, "backoffBase": 0, "leaseTime": 1}
    await store.configure("w", kind=QueueKind.WORK, options=options)
    for name in ("one", "two"):
        crew.start(name, 1, role="push", queue="w", count=200)
    for number in range(4):
        crew.start(f"worker-{number}", DEATHS, role="consume", queue="w")

    async def is_done() -> bool:
        await store.lifecycle()
        stats = (await store.get_queue("w")).counts
        return stats.pending == 0

    await crew.work_until(is_done)

    history = History(read_logs(crew.directory))
    items = await every(store.list_items, "w")
    history.check_pushes((item.partition_id, item.seq, item.transaction_id) for item in items)
    assert crew.kills >= 2, "nobody was killed: this run has shown nothing"
    assert len(items) == 200
    assert {item.state for item in items} <= {ItemState.DONE, ItemState.DEAD}
    done = sum(item.state is ItemState.DONE for item in items)
    letters = await every(store.list_dead_letters, DeadLetterFilter(queue="w"))
    outcome = Outcome(
        DEFAULT_GROUP, done, [(letter.partition_id, letter.seq) for letter in letters]
    )
    history.check_outcome(outcome, {(item.partition_id, item.seq) for item in items})
    history.check_leases_of_items()
    stats = (await store.get_queue("w")).counts
    assert (stats.completed, stats.dead) == (done, len(letters))
