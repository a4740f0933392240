"""What the metrics tell of the store, which is asked seldom and for a bounded number of labels."""

import asyncio
from typing import Any

import pytest

from monarq.errors import StoreUnavailableError
from monarq.ids import LongNumberText
from monarq.model import Group, Page, QueueCounts, QueueInfo, QueueKind, QueueOptions
from monarq.server import store_metrics
from monarq.server.metric_families import as_text
from monarq.server.store_metrics import StoreMetrics
from monarq.times import Micros
from tests.server.samples import values


class CountingStore:
    """Answers from lists, and counts how often it was asked."""

    def __init__(self) -> None:
        self.queues: list[QueueInfo] = []
        self.groups: list[Group] = []
        self.asked = 0

    def queue(self, name: str, pending: int, pushed: int = 0) -> None:
        self.queues = [queue for queue in self.queues if queue.name != name]
        self.queues.append(
            QueueInfo(
                id=LongNumberText(len(self.queues) + 1),
                name=name,
                kind=QueueKind.ORDERED,
                namespace="",
                task="",
                paused=False,
                created_at=Micros(0),
                partitions=1,
                counts=QueueCounts(
                    stored=pending,
                    pending=pending,
                    pushed=pushed,
                    completed=0,
                    failed=0,
                    dead=0,
                    dead_letters=0,
                    states={},
                ),
                options=QueueOptions(),
            )
        )

    def group(self, queue: str, name: str, lag: int, seconds: float) -> None:
        self.groups.append(
            Group(
                name=name,
                queue=queue,
                start_at=0,
                created_at=len(self.groups),
                lag=lag,
                lag_seconds=seconds,
                completed=0,
                failed=0,
                dead=0,
            )
        )

    async def list_queues(self, *, limit: int, after: str | None) -> Page[QueueInfo]:
        self.asked += 1
        await asyncio.sleep(0)
        return _page(self.queues, limit, after)

    async def list_groups(self, *, limit: int, after: str | None) -> Page[Group]:
        return _page(self.groups, limit, after)

    async def list_items(self, queue: str, *, order: str, limit: int) -> Page[Any]:
        return Page([])

    async def health_figures(self) -> dict[str, Any]:
        return {"store": "none", "databaseBytes": 3}


def _page(rows: list[Any], limit: int, after: str | None) -> Page[Any]:
    first = int(after or 0)
    more = first + limit < len(rows)
    return Page(rows[first : first + limit], str(first + limit) if more else None)


async def read(metrics: StoreMetrics) -> dict[str, float]:
    return values(as_text(await metrics.families()).decode())


def stored(store: CountingStore, labels: int) -> StoreMetrics:
    return StoreMetrics(lambda: store, labels)  # type: ignore[arg-type, return-value]


async def test_scraping_often_asks_the_store_once() -> None:
    store = CountingStore()
    metrics = stored(store, 10)
    await asyncio.gather(*(metrics.families() for _ in range(50)))
    for _ in range(50):
        await metrics.families()
    assert store.asked == 1


async def test_queues_beyond_the_bound_are_summed_as_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_metrics, "PAGE", 7)
    store = CountingStore()
    for number in range(100):
        store.queue(f"q{number:02}", pending=number)
    metrics = stored(store, 3)
    found = await read(metrics)
    pending = {name: value for name, value in found.items() if "queue_pending" in name}
    assert pending == {
        "monarq_queue_pending{kind=ordered,queue=q99}": 99,
        "monarq_queue_pending{kind=ordered,queue=q98}": 98,
        "monarq_queue_pending{kind=ordered,queue=q97}": 97,
        "monarq_queue_pending{kind=ordered,queue=other}": sum(range(97)),
    }
    assert found["monarq_queues{}"] == 100


async def test_a_queue_keeps_its_label_so_that_no_counter_falls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_metrics, "CACHE_SECONDS", 0.0)
    store = CountingStore()
    store.queue("large", 100, pushed=100)
    store.queue("small", 1, pushed=1)
    metrics = stored(store, 1)
    await read(metrics)
    store.queue("small", 5000, pushed=5000)
    store.queue("new", 1, pushed=1)
    found = await read(metrics)
    assert found["monarq_queue_pushed_total{kind=ordered,queue=large}"] == 100
    assert found["monarq_queue_pushed_total{kind=ordered,queue=other}"] == 5001
    store.queues = [queue for queue in store.queues if queue.name != "large"]
    found = await read(metrics)
    assert found["monarq_queue_pushed_total{kind=ordered,queue=other}"] == 5001
    store.queue("newest", 1, pushed=1)
    found = await read(metrics)
    assert found["monarq_queue_pushed_total{kind=ordered,queue=newest}"] == 1


async def test_groups_are_bounded_too_and_the_oldest_of_the_rest_is_told() -> None:
    store = CountingStore()
    store.queue("q", 1)
    for number in range(50):
        store.group("q", f"g{number}", lag=1, seconds=float(number))
    found = await read(stored(store, 2))
    assert found["monarq_group_lag{group=g0,queue=q}"] == 1
    assert found["monarq_group_lag{group=other,queue=other}"] == 48
    assert found["monarq_group_oldest_unacked_seconds{group=other,queue=other}"] == 49
    assert sum("group_lag" in name for name in found) == 3


async def test_a_store_that_hangs_does_not_hang_the_metrics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_metrics, "CACHE_SECONDS", 0.0)
    monkeypatch.setattr(store_metrics, "PATIENCE_SECONDS", 0.05)
    store = CountingStore()
    store.queue("a", 3)
    metrics = stored(store, 10)
    await read(metrics)
    never = asyncio.Event()

    async def hang(**_: Any) -> Any:
        await never.wait()
        return Page([], None)

    monkeypatch.setattr(store, "list_groups", hang)
    for _ in range(3):
        found = await asyncio.wait_for(read(metrics), 5)
        assert found["monarq_queue_pending{kind=ordered,queue=a}"] == 3
    assert found["monarq_store_metrics_age_seconds{}"] >= 0.15
    assert store.asked == 2  # one reading at a time
    never.set()
    assert metrics._reading is not None
    await metrics._reading


async def test_without_a_store_the_rest_is_still_told() -> None:
    def down() -> Any:
        raise StoreUnavailableError("it is down")

    assert await StoreMetrics(down, 10).families() == []
