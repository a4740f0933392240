"""The three ways to read are one: the same rows by SQLite or PostgreSQL and through a broker.

Nothing here needs Spark.
"""

import random
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from monarq.model import AckStatus, PushItem, QueueKind
from monarq.spark.access import Access, open_access
from monarq.store.contract import Store
from monarq.tables import TABLES, arrow_schema
from tests.spark.ranges import COLUMNS, read, whole
from tests.spark.seeding import Urls, fill, in_store, numbered
from tests.store.calls import ack_all, pop, push, push_items

AWKWARD = [
    b"null",
    b"true",
    b"-0.5e300",
    b'""',
    b"[]",
    b'{"a":{"b":[1,2,{"c":null}]}}',
    '"größe 日本語 👩‍👩‍👧‍👦 \\u0000 \\ud83d\\ude00"'.encode(),
    b'"' + b"x" * 1_000_000 + b'"',
]


async def a_busy_store(store: Store) -> None:
    chance = random.Random(8)
    await store.configure("jobs", kind=QueueKind.WORK, options={"maxAttempts": 1})
    for number in range(30):
        items = [
            PushItem(
                "orders",
                chance.choice(AWKWARD[:-1]),
                f"p{chance.randrange(5)}",
                transaction_id=f"t{number}-{n}" if chance.random() < 0.5 else None,
                trace_id=chance.choice([None, "trace"]),
            )
            for n in range(chance.choice([1, 3, 40]))
        ]
        await push_items(store, *items, producer=chance.choice([None, "me"]))
        await push(store, "jobs", b"%d" % number)
    await push_items(store, *(PushItem("orders", payload, "awkward") for payload in AWKWARD))
    for number in range(20):
        status = AckStatus.DEAD if number % 5 == 0 else AckStatus.COMPLETED
        await ack_all(store, await pop(store, "orders", 7), status, error="no")
        await ack_all(store, await pop(store, "jobs", 1), status)


def test_the_same_rows_whichever_way(urls: Urls, opened: Callable[..., Access]) -> None:
    in_store(urls.store, a_busy_store)
    direct, brokered = opened(urls.store), opened(urls.broker)
    assert direct.queues() == brokered.queues()
    assert [tuple(queue) for queue in direct.queues()] == [
        ("jobs", "work", False),
        ("orders", "ordered", False),
    ]
    assert direct.plan("orders").equals(brokered.plan("orders"))
    ranges = whole(direct, "orders")
    assert len(ranges) == 6
    messages = read(direct, ranges)
    assert messages.num_rows == sum(part.last_seq for part in ranges)
    assert messages.equals(read(brokered, ranges))
    assert [text.encode() for text in messages["payload"].to_pylist()[-len(AWKWARD) :]] == AWKWARD
    for name, table in TABLES.items():
        columns = table.column_names
        if name == "messages":
            continue
        if table.kind == "log":
            end = direct.log_end(name)
            # Once a minute the broker adds to the metrics.
            assert brokered.log_end(name) in (end, direct.log_end(name))
            both = [list(way.log_rows(name, None, end, columns)) for way in (direct, brokered)]
        else:
            both = [list(way.rows(name, columns)) for way in (direct, brokered)]
        ours, theirs = (pa.Table.from_batches(one, arrow_schema(name)) for one in both)
        if name == "groups":  # time passes between
            ours, theirs = ours.drop_columns("lag_seconds"), theirs.drop_columns("lag_seconds")
        assert ours.equals(theirs), name
        assert ours.num_rows or name == "metrics", name


def test_one_huge_partition_and_very_many_small_ones(
    urls: Urls, opened: Callable[..., Access]
) -> None:
    fill(urls.store, numbered("large", 70_000))
    fill(urls.store, numbered("small", 10_000, partitions=10_000))
    for access in (opened(urls.store), opened(urls.broker)):
        table = read(access, whole(access, "large"), ["seq", "payload"])
        assert table["seq"].to_pylist() == list(range(1, 70_001))
        assert table["payload"][-1].as_py() == '{"n": 69999}'
        batches = list(access.messages(whole(access, "large"), ["seq"]))
        assert max(batch.num_rows for batch in batches) < 50_000
        ranges = whole(access, "small")
        assert len(ranges) == 10_000
        table = read(access, ranges, ["payload", "partition"])
        assert table.num_rows == 10_000
        assert len(set(table["payload"].to_pylist())) == 10_000
        assert len(list(access.messages(ranges, ["seq"]))) < 100, "a batch has many partitions"


def test_an_empty_queue_and_ranges_of_nothing_are_no_rows(
    urls: Urls, opened: Callable[..., Access]
) -> None:
    fill(urls.store, numbered("q", 3))

    async def empty(store: Store) -> None:
        await store.configure("empty")
        await store.clear_queue("q")

    in_store(urls.store, empty)
    for access in (opened(urls.store), opened(urls.broker)):
        assert access.plan("empty").num_rows == 0
        [part] = whole(access, "q")
        assert (part.first_seq, part.last_seq) == (4, 3)
        assert list(access.messages([part, part._replace(first_seq=1)], COLUMNS)) == []
        assert list(access.messages([], ["seq"])) == []


def test_what_is_archived_is_noted_whichever_way(urls: Urls, opened: Callable[..., Access]) -> None:
    fill(urls.store, numbered("q", 20_000, partitions=12_000))
    direct, brokered = opened(urls.store), opened(urls.broker)
    positions = {part.partition_id: part.last_seq for part in whole(direct, "q")}
    assert len(positions) == 12_000, "more than one call takes"
    some = dict(list(positions.items())[:3])
    direct.set_archived("q", some)
    assert brokered.archived("q") == some
    brokered.set_archived("q", positions)
    assert direct.archived("q") == positions


def test_a_plan_for_a_time_is_the_same_whichever_way(
    urls: Urls, opened: Callable[..., Access]
) -> None:
    fill(urls.store, numbered("q", 10))
    first = in_store(urls.store, lambda store: store.list_messages("q", limit=1)).rows[0]
    for access in (opened(urls.store), opened(urls.broker)):
        at = first.created_at
        [from_then] = access.plan("q", created_from=at).to_pylist()
        assert (from_then["first_seq"], from_then["last_seq"]) == (1, 10)
        [before] = access.plan("q", created_to=at).to_pylist()
        assert before["last_seq"] < before["first_seq"]


def test_many_threads_share_one_way(urls: Urls, opened: Callable[..., Access]) -> None:
    fill(urls.store, numbered("q", 5_000, partitions=3))
    for access in (opened(urls.store), opened(urls.broker)):
        ranges = whole(access, "q")
        with ThreadPoolExecutor(8) as threads:
            tables = list(threads.map(lambda _: read(access, ranges), range(16)))  # noqa: B023
        assert all(table.equals(tables[0]) for table in tables)
        assert tables[0].num_rows == 5_000


def test_reading_can_be_broken_off_and_begun_again(
    urls: Urls, opened: Callable[..., Access]
) -> None:
    fill(urls.store, numbered("q", 100_000, size=100))
    for access in (opened(urls.store), opened(urls.broker)):
        for _ in range(5):
            batches = access.messages(whole(access, "q"), COLUMNS)
            assert next(batches).num_rows
            batches.close()  # type: ignore[attr-defined]
        assert read(access, whole(access, "q"), ["seq"]).num_rows == 100_000


def test_a_way_is_opened_once_and_anew_when_it_was_closed(store_url: str) -> None:
    fill(store_url, numbered("q", 1))
    first = open_access(store_url)
    assert open_access(store_url) is first
    first.close()
    first.close()
    second = open_access(store_url)
    assert second is not first
    assert second.plan("q").num_rows == 1
    second.close()


def test_a_forked_process_opens_its_own(store_url: str, opened: Callable[..., Access]) -> None:
    """As Spark's Python workers are."""
    fill(store_url, numbered("q", 10))
    program = """
import os, sys, warnings
from monarq.spark.access import open_access
warnings.simplefilter("ignore", DeprecationWarning)
url = sys.argv[1]
mine = open_access(url)
assert mine.plan("q").num_rows == 1
child = os.fork()
if child == 0:
    other = open_access(url)
    assert other is not mine
    assert other.plan("q").num_rows == 1
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert mine.plan("q").num_rows == 1
mine.close()
"""
    subprocess.run([sys.executable, "-c", program, store_url], check=True, timeout=120)
