"""The logs from position to position: every row once, whatever order transactions end in."""

from typing import Any

import pytest

from monarq.clock import ManualClock
from monarq.errors import EncryptionKeyError, InvalidRequestError
from monarq.model import DEFAULT_GROUP, DeadLetterFilter
from monarq.store import Store
from monarq.store.batches import rows_of
from tests.store.calls import ack_all, pop, push, push_many
from tests.store.conftest import OpenStore
from tests.store.reading_logs import deliver, read
from tests.store.scenarios import DEAD, FAILED, WORK, every, let_time_work

pytestmark = pytest.mark.smoke

LOGS = ("deliveries", "dead_letters", "attempts", "metrics")


def micros(row: dict[str, Any], column: str) -> int | None:
    moment = row[column]
    if moment is None:
        return None
    return round(moment.timestamp()) * 1_000_000 + moment.microsecond


async def test_the_delivery_log_is_exported_as_it_is_listed(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retryLimit": 1, "retryDelay": 0, "leaseTime": 5})
    await push_many(store, "q", 4, partition="ü 🎉")
    await ack_all(store, await pop(store, "q", 2, consumer="me"))
    await ack_all(store, await pop(store, "q", 1), FAILED, error="no\nsecond line")
    await pop(store, "q", 2)
    clock.advance(6)
    await store.lifecycle()
    await store.delete_group(DEFAULT_GROUP)
    listed = await every(store.list_deliveries)
    exported = await read(store, "deliveries")
    assert {row["consumer_group"] for row in exported} == {DEFAULT_GROUP}
    assert len(exported) == len(listed) >= 3
    for row, delivery in zip(exported, listed, strict=True):
        assert row["consumer_group"] == delivery.group
        assert micros(row, "leased_at") == delivery.leased_at
        assert micros(row, "ended_at") == delivery.ended_at
        for name in set(row) - {"consumer_group", "leased_at", "ended_at"}:
            assert row[name] == getattr(delivery, name), name


async def test_dead_letters_are_exported_as_they_are_listed(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await push(store, "q", '{"ö":1}'.encode(), transaction_id="t", trace_id="r")
    await push(store, "w", b"[2]")
    for queue in ("q", "w"):
        await ack_all(store, await pop(store, queue), DEAD, error="broken")
    listed = (await every(store.list_dead_letters, DeadLetterFilter()))[::-1]
    exported = await read(store, "dead_letters")
    assert [row["queue"] for row in exported] == ["q", "w"]
    for row, letter in zip(exported, listed, strict=True):
        assert row["payload"].encode() == letter.payload
        assert row["consumer_group"] == letter.group
        assert row["message_id"] == f"{letter.partition_id}-{letter.seq}"
        assert micros(row, "failed_at") == letter.failed_at
        for name in ("id", "partition", "seq", "transaction_id", "error", "attempts", "trace_id"):
            assert row[name] == getattr(letter, name), name


async def test_attempts_and_items_are_exported_as_they_are_listed(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("w", kind=WORK, options={"maxAttempts": 2, "backoffBase": 1})
    await push(store, "w", b"1", transaction_id="first", priority=7)
    await push(store, "w", b"2", delay_seconds=100)
    await push(store, "w", b"3")
    for status in (FAILED, DEAD):
        await ack_all(store, await pop(store, "w", consumer="me"), status, error="no", result=b"7")
        clock.advance(2)
    attempts = await every(store.list_attempts)
    exported = await read(store, "attempts")
    assert len(attempts) == 2
    for row, attempt in zip(exported, attempts, strict=True):
        assert row["result"] == "7"
        assert row["outcome"] == attempt.outcome.value
        assert micros(row, "ended_at") == attempt.ended_at
        for name in ("item_id", "queue", "attempt", "consumer", "error"):
            assert row[name] == getattr(attempt, name), name
    items = await every(store.list_items, "w")
    exported = await read(store, "items")
    assert len(items) == 3
    for row, item in zip(exported, items, strict=True):
        assert row["payload"].encode() == item.payload
        assert row["message_id"] == item.id
        assert row["state"] == item.state.value
        assert micros(row, "run_at") == item.run_at
        assert micros(row, "finished_at") == item.finished_at
        for name in ("seq", "transaction_id", "priority", "attempts", "max_attempts", "error"):
            assert row[name] == getattr(item, name), name


async def test_queues_and_groups_are_exported_as_they_are_now(store: Store) -> None:
    await store.configure("w", kind=WORK, namespace="n", task="t")
    await push_many(store, "q", 3)
    await ack_all(store, await pop(store, "q", 2, group="g"))
    queues = {row["queue"]: row for row in await read(store, "queues")}
    assert (queues["w"]["kind"], queues["w"]["namespace"], queues["w"]["task"]) == (
        "work",
        "n",
        "t",
    )
    assert (queues["q"]["pushed"], queues["q"]["pending"]) == (3, 1)
    assert '"leaseTime":300' in queues["q"]["options"]
    [group] = await read(store, "groups")
    assert (group["queue"], group["consumer_group"], group["lag"]) == ("q", "g", 1)
    assert [row["queue"] for row in await read(store, "queues", queues=["q"])] == ["q"]
    assert await read(store, "groups", queues=["w"]) == []


async def test_whether_anything_was_pushed_is_known_from_counters(store: Store) -> None:
    await push_many(store, "q", 3)
    await push_many(store, "other", 2)
    [rows] = [rows async for rows in rows_of(store, "queues", ["queue", "pushed"], queues=["q"])]
    assert rows == [("q", 3)]


@pytest.mark.parametrize("table", LOGS)
async def test_positions_cut_a_log_into_pieces_that_are_the_whole(
    store: Store, clock: ManualClock, table: str
) -> None:
    await store.configure("w", kind=WORK)
    pieces: list[dict[str, Any]] = []
    position = None
    positions = []
    for number in range(5):
        for _ in range(number):
            await deliver(store)
            await push(store, "q")
            await ack_all(store, await pop(store, "q"), DEAD)
            await push(store, "w")
            await ack_all(store, await pop(store, "w"))
        clock.advance(61)
        await store.lifecycle()
        clock.advance(61)
        end = await store.log_end(table)
        pieces += await read(store, table, position, end)
        position = end
        positions.append(end)
    assert positions == sorted(positions), "positions sort as texts"
    assert pieces == await read(store, table)
    assert len(pieces) >= 4
    assert await read(store, table, position, await store.log_end(table)) == []


async def test_pages_of_a_log_neither_miss_nor_repeat_a_row(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("w", kind=WORK)
    for number in range(7):
        await deliver(store, f"q{number}")
        await push(store, "w")
    clock.advance(61)
    await store.lifecycle()
    for table, columns in (("deliveries", ["queue"]), ("metrics", ["queue"]), ("items", ["seq"])):
        whole = (await store.export_rows(table, columns)).rows
        assert len(whole) >= 7
        for limit in (1, 2, 3, 100):
            rows: list[Any] = []
            after = None
            while True:
                page = await store.export_rows(table, columns, after=after, limit=limit)
                assert len(page.rows) <= limit
                rows += page.rows
                if page.next is None:
                    break
                after = page.next
            assert [tuple(row) for row in rows] == [tuple(row) for row in whole]


async def test_a_log_can_be_read_of_some_queues_alone(store: Store) -> None:
    for queue in ("a", "b", "c"):
        await deliver(store, queue, 2)
    rows = await read(store, "deliveries", queues=["a", "c", "nowhere"])
    assert [row["queue"] for row in rows] == ["a", "a", "c", "c"]
    assert await read(store, "deliveries", queues=[]) == []


async def test_a_position_does_not_fall_when_the_last_rows_are_removed(store: Store) -> None:
    await push(store, "q")
    await ack_all(store, await pop(store, "q"), DEAD)
    before = await store.log_end("dead_letters")
    await store.purge_dead_letters(all=True)
    assert await store.log_end("dead_letters") == before
    await push(store, "q")
    await ack_all(store, await pop(store, "q"), DEAD)
    assert len(await read(store, "dead_letters", before)) == 1


async def test_payloads_of_encrypted_dead_letters_and_items_are_opened(
    store: Store, open_another: OpenStore
) -> None:
    await store.configure("q", options={"encryptionEnabled": True})
    await store.configure("w", kind=WORK, options={"encryptionEnabled": True})
    await push(store, "q", b'"secret"')
    await push(store, "w", b'"hidden"')
    await ack_all(store, await pop(store, "q"), DEAD)
    assert [row["payload"] for row in await read(store, "dead_letters")] == ['"secret"']
    assert [row["payload"] for row in await read(store, "items")] == ['"hidden"']
    without = await open_another(keys=())
    assert (await without.export_rows("items", ["seq"])).rows
    with pytest.raises(EncryptionKeyError):
        await read(without, "items")


async def test_what_is_no_log_and_no_position_is_refused(store: Store) -> None:
    await deliver(store)
    for table in ("messages", "queues", "groups", "segments", ""):
        with pytest.raises(InvalidRequestError):
            await store.export_rows(table, ["queue"])
    for table in ("messages", "items", "queues", "nothing"):
        with pytest.raises(InvalidRequestError):
            await store.log_end(table)
    for position in ("", "1", "x" * 19, f"{0:019}.{0:019}", f"-{0:018}", "9" * 19, "٣" * 19):
        with pytest.raises(InvalidRequestError):
            await store.export_rows("deliveries", ["id"], after=position)
        with pytest.raises(InvalidRequestError):
            await store.export_rows("deliveries", ["id"], until=position)
    with pytest.raises(InvalidRequestError):
        await store.export_rows("items", ["seq"], until=f"{1:019}")
    for columns in ([], ["payload"], ["id", "id"]):
        with pytest.raises(InvalidRequestError):
            await store.export_rows("deliveries", columns)
    for limit in (0, 10**9):
        with pytest.raises(InvalidRequestError):
            await store.export_rows("deliveries", ["id"], limit=limit)


async def test_metrics_of_a_minute_that_goes_on_are_not_given_before_it_is_over(
    store: Store, clock: ManualClock
) -> None:
    seen: list[dict[str, Any]] = []
    position = None
    for _ in range(6):
        await deliver(store)
        await store.lifecycle()
        end = await store.log_end("metrics")
        seen += await read(store, "metrics", position, end)
        position = end
        clock.advance(25)
    clock.advance(120)
    await let_time_work(store)
    seen += await read(store, "metrics", position, await store.log_end("metrics"))
    assert seen == await read(store, "metrics", until=await store.log_end("metrics"))
    assert seen
