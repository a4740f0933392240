"""Pushing, popping and answering through a client."""

import asyncio
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from monarq.client.async_client import AsyncClient
from monarq.errors import (
    AlreadyAckedError,
    InvalidRequestError,
    LeaseError,
    MonarqError,
    NotFoundError,
    PayloadError,
    TransactionFailedError,
)
from monarq.model import Ack, Acked, Push, PushItem, PushStatus, QueueKind

pytestmark = pytest.mark.smoke


async def test_what_is_pushed_is_popped_in_order(mq: AsyncClient) -> None:
    orders = mq.queue("orders").partition("c-42")
    for number in range(3):
        await orders.push({"number": number})
    batch = await orders.pop(10)
    assert [message.payload for message in batch] == [{"number": n} for n in range(3)]
    assert [message.partition for message in batch] == ["c-42"] * 3
    await batch.ack()
    assert not await orders.pop(10)


async def test_many_are_pushed_all_or_none(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    pushed = await queue.push_many(range(100))
    assert [each.seq for each in pushed] == list(range(1, 101))
    with pytest.raises(InvalidRequestError, match="JSON"):
        await queue.push_many([1, object()])
    assert (await queue.stats()).pushed == 100
    assert await queue.push_many([]) == []


async def test_a_group_that_does_not_exist_has_no_row_and_no_cursors(mq: AsyncClient) -> None:
    await mq.queue("q").push(1)
    assert (await mq.admin.list_groups(group="g")).rows == []
    assert (await mq.admin.list_groups(queue="q", group="g")).rows == []
    assert (await mq.admin.list_groups(queue="missing", group="g")).rows == []
    with pytest.raises(NotFoundError, match="queue 'q' has no group 'g'"):
        await mq.admin.list_cursors("q", "g")
    with pytest.raises(NotFoundError, match="queue 'missing'"):
        await mq.admin.list_cursors("missing", "g")


async def test_a_transaction_id_is_stored_once(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    first = await queue.push(1, transaction_id="t")
    again = await queue.push(1, transaction_id="t")
    assert (first.status, again.status) == (PushStatus.QUEUED, PushStatus.DUPLICATE)
    assert again.seq == first.seq


async def test_a_waiting_pop_gets_what_is_pushed_meanwhile(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    waiting = asyncio.ensure_future(queue.pop(wait=20))
    await asyncio.sleep(0)
    await queue.push("hello")
    assert [message.payload for message in await waiting] == ["hello"]


async def test_groups_each_get_everything(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push_many("abc")
    for group in ("one", "two"):
        batch = await queue.pop(5, group=group)
        assert [message.payload for message in batch] == ["a", "b", "c"]
        await batch.ack()
    assert {row.name: row.lag for row in (await queue.groups()).rows} == {"one": 0, "two": 0}


async def test_a_failed_message_is_delivered_again_and_then_buried(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.configure(retry_limit=1, retry_delay=0)
    await queue.push("x")
    for attempt in (1, 2):
        [message] = await queue.pop(wait=5)
        assert message.attempts == attempt
        await message.fail(ValueError("bad"))
    [letter] = (await queue.dead_letters()).rows
    assert letter.error == "ValueError: bad"
    assert await queue.redrive() == 1
    assert [message.payload for message in await queue.pop()] == ["x"]


async def test_a_message_is_answered_once(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push(1)
    [message] = await queue.pop()
    await message.ack()
    with pytest.raises(AlreadyAckedError):
        await message.fail()


async def test_answering_one_by_one_and_then_the_rest(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push_many(range(4))
    batch = await queue.pop(4)
    await batch[1].ack()
    await batch[3].bury("why not")
    await batch.ack()
    assert batch.unanswered == []
    stats = await queue.stats()
    assert (stats.completed, stats.dead) == (3, 1)


async def test_what_is_released_is_delivered_again_uncounted(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push_many(range(2))
    batch = await queue.pop(2)
    await batch.release()
    assert [message.attempts for message in await queue.pop(2)] == [1, 1]


async def test_a_stale_lease_is_told(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push(1)
    [message] = await queue.pop()
    await queue.seek(to="start")
    with pytest.raises(LeaseError):
        await message.ack()
    assert not message.answered


async def test_a_lease_is_renewed(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push(1)
    [message] = await queue.pop(lease=10)
    until = await message.renew(3600)
    assert until > datetime.now(UTC) + timedelta(minutes=50)


async def test_replay_is_a_seek_back(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push_many("abc")
    await (await queue.pop(3)).ack()
    assert await queue.seek(to="start") == 3
    assert len(await queue.pop(3)) == 3
    assert await queue.seek(seq=3) == 1
    assert await queue.seek(time=datetime.now(UTC) + timedelta(hours=-1)) == 3


async def test_an_option_of_the_other_kind_of_queue_is_refused_and_changes_nothing(
    mq: AsyncClient,
) -> None:
    work, ordered = mq.queue("w"), mq.queue("q")
    await work.configure(kind="work", max_attempts=7)
    with pytest.raises(InvalidRequestError, match="retry_limit is an option of ordered queues"):
        await work.configure(retry_limit=1, lease_time=5)
    assert (await work.info()).options.lease_time == 300
    for kind in (None, "ordered"):
        with pytest.raises(InvalidRequestError, match="max_attempts is an option of work queues"):
            await ordered.configure(kind=kind, max_attempts=1)
    with pytest.raises(NotFoundError):
        await ordered.info()


async def test_a_work_queue_leases_by_priority_and_keeps_results(mq: AsyncClient) -> None:
    queue = mq.queue("w")
    await queue.configure(kind="work")
    assert (await queue.info()).kind is QueueKind.WORK
    await queue.push("low", priority=1)
    await queue.push("high", priority=9)
    pushed = await queue.push("later", delay=timedelta(hours=1))
    batch = await queue.pop(5)
    assert [message.payload for message in batch] == ["high", "low"]
    await batch[0].ack(result={"ok": True})
    [attempt] = (await mq.admin.get_item(batch[0].id)).history
    assert msgspec.json.decode(attempt.result or b"") == {"ok": True}
    assert (await mq.admin.get_item(pushed.message_id)).state == "scheduled"


async def test_a_transaction_happens_whole(mq: AsyncClient) -> None:
    source, target = mq.queue("source"), mq.queue("target")
    await source.push(1)
    [message] = await source.pop()
    async with mq.transaction() as tx:
        tx.ack(message)
        tx.push(target, message.payload + 1)
    assert message.answered
    assert [each.payload for each in await target.pop()] == [2]


async def test_a_transaction_whose_block_raised_never_happens(mq: AsyncClient) -> None:
    source, target = mq.queue("source"), mq.queue("target")
    await source.push(1)
    [message] = await source.pop()

    async def fail_inside() -> None:
        async with mq.transaction() as tx:
            tx.push(target, 1)
            tx.ack(message)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_inside()
    assert not message.answered
    assert not await target.pop()
    await message.ack()


async def test_a_transaction_with_a_lost_lease_does_nothing(mq: AsyncClient) -> None:
    source, target = mq.queue("source"), mq.queue("target")
    await source.push(1)
    [message] = await source.pop()
    await source.seek(to="start")
    tx = mq.transaction()
    tx.push(target, 1)
    tx.ack(message)
    with pytest.raises(TransactionFailedError, match="nothing was carried out"):
        await tx.__aexit__(None)
    assert not await target.pop()


class Order(msgspec.Struct):
    number: int
    customer: str


@dataclass
class Plain:
    number: int


async def test_payloads_have_the_queues_type(mq: AsyncClient) -> None:
    orders = mq.queue("orders", Order)
    await orders.push(Order(1, "ada"))
    await mq.queue("orders").push({"number": "one"})
    good, bad = await orders.pop(2)
    assert good.payload == Order(1, "ada")
    with pytest.raises(PayloadError, match="no Order"):
        _ = bad.payload
    assert bad.data == b'{"number":"one"}'


async def test_a_number_that_python_has_not_is_told_as_a_payload_that_cannot_be_read(
    mq: AsyncClient,
) -> None:
    await mq.push(Push([PushItem("q", b"1e999")]))
    [message] = await mq.queue("q").pop()
    with pytest.raises(PayloadError, match="the payload cannot be read"):
        _ = message.payload


async def test_a_payload_of_another_type_is_not_pushed(mq: AsyncClient) -> None:
    with pytest.raises(InvalidRequestError, match="no Plain"):
        await mq.queue("q", Plain).push({"number": "x"})  # type: ignore[arg-type]
    assert (await mq.admin.list_queues()).rows == []


_ENDLESS: list[Any] = []
_ENDLESS.append(_ENDLESS)


@pytest.mark.parametrize(
    "payload",
    [math.nan, {"deep": [None, -math.inf]}, _ENDLESS, object()],
    ids=["nan", "infinity inside", "endless", "object"],
)
async def test_what_json_has_no_way_to_write_is_refused_and_not_changed(
    mq: AsyncClient, payload: Any
) -> None:
    with pytest.raises(InvalidRequestError, match="JSON"):
        await mq.queue("q").push(payload)
    assert (await mq.admin.list_queues()).rows == []


@pytest.mark.parametrize("wait", [math.nan, math.inf, -1.0])
async def test_a_wait_that_is_no_time_is_refused(mq: AsyncClient, wait: float) -> None:
    with pytest.raises(InvalidRequestError, match="wait"):
        await mq.queue("q").pop(wait=wait)


async def test_a_message_is_traced(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push(1)
    [message] = await queue.pop()
    await message.trace("seen", {"by": "me"}, names=["mine"])
    [trace] = (await mq.admin.list_traces(name="mine")).rows
    assert (trace.event_type, trace.data) == ("seen", b'{"by":"me"}')


async def test_a_paused_queue_gives_nothing(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push(1)
    await queue.pause()
    assert not await queue.pop()
    await queue.resume()
    assert await queue.pop()
    assert await queue.clear() == 1
    assert await queue.delete()


async def test_a_time_without_a_zone_is_refused(mq: AsyncClient) -> None:
    with pytest.raises(InvalidRequestError, match="time zone"):
        await mq.queue("q").seek(time=datetime(2026, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize("name", [".", "..", "a/b?c#d%"])
async def test_names_that_look_like_steps_of_a_path_are_names(mq: AsyncClient, name: str) -> None:
    """And deleting a group there leaves it alone elsewhere."""
    await mq.queue(name).partition(name).push(1)
    await mq.queue(name).partition("other").push(2)
    [message] = await mq.queue(name).partition(name).pop(10, group="g")
    assert message.payload == 1
    await message.ack()
    assert (await mq.queue(name).info()).name == name
    await mq.queue("elsewhere").push(1)
    await mq.queue("elsewhere").pop(group="g", auto_ack=True)
    await mq.admin.delete_group("g", queue=name)
    assert [row.queue for row in (await mq.queue("elsewhere").groups()).rows] == ["elsewhere"]


async def test_dead_letters_are_chosen_alike_wherever_the_broker_is(mq: AsyncClient) -> None:
    """What a filter does not say is left alone, above all by what removes."""
    queue = mq.queue("q")
    await queue.push_many(range(6))
    for error in ("lost", "late", "lost", "odd", "late", "lost"):
        [message] = await queue.pop()
        await message.bury(error)
    every = {each.id: each.error for each in (await queue.dead_letters()).rows}
    first, *_, last = sorted(every)

    async def found(**which: Any) -> list[int]:
        page = await mq.admin.list_dead_letters(**which)
        rows = page.rows
        assert page.total == len(rows)
        return sorted(row.id for row in rows)

    assert await found(error="late") == [key for key in sorted(every) if every[key] == "late"]
    assert await found(ids=[first, last]) == [first, last]
    assert await mq.admin.purge_dead_letters(error="late") == 2
    assert await mq.admin.redrive(error="odd") == 1
    assert await found() == [key for key in sorted(every) if every[key] == "lost"]
    assert await mq.admin.purge_dead_letters(error="lost", ids=[first]) == 1
    assert len(await found(queue="q")) == 2


# --- without a handle on a queue -------------------------------------------------------------


async def test_pops_across_queues_find_what_any_of_them_has(mq: AsyncClient) -> None:
    for name, task in (("a", "x"), ("b", "x"), ("c", "y")):
        await mq.queue(name).configure(namespace="shop", task=task)
        await mq.queue(name).push(name)
    assert not await mq.pop(10, namespace="elsewhere")
    batch = await mq.pop(10, namespace="shop", task="x", partitions=10, lease=60)
    assert sorted((message.queue, message.payload) for message in batch) == [
        ("a", "a"),
        ("b", "b"),
    ]
    await batch.ack()
    [message] = await mq.pop(10, namespace="shop", partitions=10)
    assert message.payload == "c"
    with pytest.raises(InvalidRequestError):
        await mq.pop()


async def test_what_was_popped_is_answered_by_whoever_knows_its_lease(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push_many(range(3))
    batch = await queue.pop(3)
    assert batch.lease_id is not None
    until = await mq.renew(batch.lease_id, 900)
    assert timedelta(seconds=890) < until - datetime.now(UTC) < timedelta(seconds=910)
    stranger = Ack(lease_id=batch.lease_id + "0")
    first, refused = await mq.ack([batch[0].to_ack(), stranger])
    assert isinstance(first, Acked)
    assert isinstance(refused, MonarqError)
    [rest] = await mq.ack([Ack(lease_id=batch.lease_id)])
    assert isinstance(rest, Acked)
    assert (rest.count, rest.lease_released) == (2, True)
    assert (await queue.stats()).completed == 3


async def test_partitions_are_listed_with_what_they_hold(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    for name in ("one", "two"):
        await queue.partition(name).push_many(range(3))
    batch = await queue.partition("two").pop(2)
    await batch.ack()
    page = await queue.partitions(limit=1)
    rows = page.rows + (await queue.partitions(after=page.next)).rows
    assert [(row.partition, row.first_seq, row.last_seq, row.pending) for row in rows] == [
        ("one", 1, 3, 3),
        ("two", 1, 3, 1),
    ]
    with pytest.raises(NotFoundError):
        await mq.queue("missing").partitions()
