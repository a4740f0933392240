"""Acks and the next pop in one call: together in the store, and nobody is overtaken."""

import asyncio
from typing import Any

import pytest

from monarq.broker.broker import Broker
from monarq.clock import ManualClock
from monarq.errors import DrainingError, InvalidRequestError, StoreUnavailableError
from monarq.model import Ack, Acked, AckStatus, Pop, Popped, Push, PushItem, QueueKind, StartFrom
from tests.broker.calls import BOUND, bounded, parked, payloads, pop, push, turns, until, wait_for
from tests.broker.conftest import StartBroker
from tests.broker.watching import Watched


def whole(popped: Popped) -> list[Ack]:
    return [Ack(lease_id=popped.lease_id)]


async def push_numbers(broker: Broker, count: int, partitions: int = 1) -> None:
    items = [PushItem("q", b"%d" % n, f"p{n % partitions}") for n in range(count)]
    await broker.push(Push(items))


async def ack_and_pop(broker: Broker, popped: Popped, queue: str = "q", **fields: Any) -> Popped:
    """The next after these, which must be acked."""
    future = broker.submit_ack_and_pop(whole(popped), Pop(queue=queue, **fields))
    [acked], then = await bounded(future)
    assert isinstance(acked, Acked)
    assert isinstance(then, Popped)
    return then


async def test_from_one_message_to_the_next(broker: Broker, watched: Watched) -> None:
    await push_numbers(broker, 3)
    popped = await pop(broker, "q")
    watched.forget()
    for number in (1, 2):
        popped = await ack_and_pop(broker, popped)
        assert payloads(popped) == [b"%d" % number]
    assert (await ack_and_pop(broker, popped)).messages == []
    assert [watched.count(name) for name in ("ack_and_pop", "ack", "pop")] == [3, 0, 0]


async def test_many_at_once_are_one_call_to_the_store_with_pops_among_them(
    broker: Broker, watched: Watched
) -> None:
    await push_numbers(broker, 40, partitions=10)
    first = [await pop(broker, "q") for _ in range(9)]
    watched.forget()
    futures = [broker.submit_ack_and_pop(whole(one), Pop(queue="q")) for one in first]
    alone = broker.submit_pop(Pop(queue="q"))
    for future in futures:
        [acked], then = await bounded(future)
        assert isinstance(acked, Acked)
        assert len(then.messages) == 1
    assert len((await bounded(alone)).messages) == 1
    assert [len(acks) for acks in watched.requests("ack_and_pop")] == [9]
    assert watched.count("pop") == watched.count("ack") == 0


async def test_the_next_call_is_on_its_way_before_the_answers_of_the_last_are_read(
    broker: Broker, watched: Watched
) -> None:
    await push_numbers(broker, 6, partitions=2)
    first, second = await pop(broker, "q"), await pop(broker, "q")
    watched.forget()
    gate = watched.hold_answers("ack_and_pop")
    early = broker.submit_ack_and_pop(whole(first), Pop(queue="q"))
    await until(lambda: watched.count("ack_and_pop") == 1)
    late = broker.submit_ack_and_pop(whole(second), Pop(queue="q"))
    await turns()
    calls_by_then: list[int] = []
    early.add_done_callback(lambda _: calls_by_then.append(watched.count("ack_and_pop")))
    gate.set()
    for future in (early, late):
        [acked], then = await bounded(future)
        assert isinstance(acked, Acked)
        assert len(then.messages) == 1
    assert calls_by_then == [2]
    # One after the other all the same.
    assert watched.most_under_way["ack_and_pop"] == 1


async def test_who_comes_to_wait_while_a_call_is_under_way_is_not_overtaken_by_the_next(
    broker: Broker, watched: Watched
) -> None:
    await push_numbers(broker, 2)
    popped = await pop(broker, "q")
    gate = watched.hold_answers("ack_and_pop")
    # Nothing that it acks, and nothing that it finds.
    unknown = [Ack(lease_id="999-0123456789abcdef")]
    first = broker.submit_ack_and_pop(unknown, Pop(queue="q"))
    await until(lambda: watched.count("ack_and_pop") == 1)
    waiting = wait_for(broker, "q")
    second = broker.submit_ack_and_pop(whole(popped), Pop(queue="q"))
    await turns()
    gate.set()
    assert (await bounded(first))[1].messages == []
    assert payloads(await bounded(waiting)) == [b"1"]
    [acked], then = await bounded(second)
    assert isinstance(acked, Acked)
    assert then.messages == []


async def test_who_waits_for_items_is_not_overtaken_by_who_gives_them_back(broker: Broker) -> None:
    await broker.configure("jobs", kind=QueueKind.WORK)
    await push(broker, "jobs", b"1")
    popped = await pop(broker, "jobs")
    waiting = wait_for(broker, "jobs")
    await parked(broker, 1)
    release = Ack(lease_id=popped.lease_id, status=AckStatus.RELEASE)
    [acked], then = await bounded(broker.submit_ack_and_pop([release], Pop(queue="jobs")))
    assert isinstance(acked, Acked)
    assert then.messages == []
    assert payloads(await bounded(waiting)) == [b"1"]


@pytest.mark.parametrize(
    "place_waited_at", [{"partition": "p0"}, {}, {"queue": None, "namespace": "n"}]
)
async def test_nobody_who_waits_for_the_same_partition_is_overtaken(
    broker: Broker, place_waited_at: dict[str, Any]
) -> None:
    await broker.configure("q", namespace="n")
    await push_numbers(broker, 2)
    popped = await pop(broker, "q")
    waiting = broker.submit_pop(Pop(**{"queue": "q", **place_waited_at}), 30)
    await parked(broker, 1)
    assert (await ack_and_pop(broker, popped)).messages == []
    assert payloads(await bounded(waiting)) == [b"1"]


async def test_those_who_wait_for_something_else_are_no_reason_to_go_away_empty(
    broker: Broker,
) -> None:
    await push_numbers(broker, 2)
    popped = await pop(broker, "q")
    others = [wait_for(broker, "other"), wait_for(broker, "q", group="g", start=StartFrom.NEW)]
    await parked(broker, 2)
    assert payloads(await ack_and_pop(broker, popped)) == [b"1"]
    assert not any(other.done() for other in others)


async def test_what_others_wait_for_is_told_to_them(broker: Broker) -> None:
    """The acks are of another queue than the one that is popped."""
    await push_numbers(broker, 2)
    popped = await pop(broker, "q")
    waiting = wait_for(broker, "q")
    await parked(broker, 1)
    assert (await ack_and_pop(broker, popped, queue="other")).messages == []
    assert payloads(await bounded(waiting)) == [b"1"]


async def test_a_malformed_pop_is_refused_and_nothing_is_acked(broker: Broker) -> None:
    await push_numbers(broker, 2)
    popped = await pop(broker, "q")
    with pytest.raises(InvalidRequestError):
        await broker.submit_ack_and_pop(whole(popped), Pop(queue="q", batch=0))
    assert payloads(await ack_and_pop(broker, popped)) == [b"1"]


async def test_a_pop_that_the_store_refuses_leaves_the_acks(broker: Broker) -> None:
    await broker.configure("jobs", kind=QueueKind.WORK)
    await push_numbers(broker, 2)
    popped = await pop(broker, "q")
    future = broker.submit_ack_and_pop(whole(popped), Pop(queue="jobs", group="g"))
    [acked], refused = await bounded(future)
    assert isinstance(acked, Acked)
    assert isinstance(refused, InvalidRequestError)


async def test_in_maintenance_of_pops_acks_are_taken_and_nothing_is_found(broker: Broker) -> None:
    await push_numbers(broker, 2)
    popped = await pop(broker, "q")
    await broker.set_maintenance(pop=True)
    assert (await ack_and_pop(broker, popped)).messages == []
    await broker.set_maintenance(pop=False)
    assert payloads(await pop(broker, "q")) == [b"1"]


async def test_without_a_store_neither_is_done(
    broker: Broker, watched: Watched, clock: ManualClock
) -> None:
    await push_numbers(broker, 2)
    popped = await pop(broker, "q")
    watched.is_down = True
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            await bounded(broker.submit_ack_and_pop(whole(popped), Pop(queue="q")))
    assert broker.measures.ack.errors == 1
    watched.is_down = False
    clock.advance(10)
    await until(lambda: broker.health().store_ok)
    assert payloads(await ack_and_pop(broker, popped)) == [b"1"]


async def test_a_broker_that_drains_refuses_both(broker: Broker) -> None:
    broker.drain()
    with pytest.raises(DrainingError):
        await broker.submit_ack_and_pop([Ack(lease_id="1-0123456789abcdef")], Pop(queue="q"))


async def test_who_went_away_has_acked_and_what_was_leased_to_it_is_given_back(
    broker: Broker, watched: Watched
) -> None:
    await push_numbers(broker, 2)
    popped = await pop(broker, "q")
    gate = watched.hold_answers("ack_and_pop")
    future = broker.submit_ack_and_pop(whole(popped), Pop(queue="q"))
    await until(lambda: watched.under_way["ack_and_pop"] == 1)
    future.cancel()
    gate.set()
    again = await bounded(wait_for(broker, "q"))
    assert payloads(again) == [b"1"]
    assert again.messages[0].attempts == 1


async def test_a_caller_cancelled_when_its_answer_is_there_gives_it_back(broker: Broker) -> None:
    await push_numbers(broker, 2)
    popped = await pop(broker, "q")
    caller = asyncio.ensure_future(broker.ack_and_pop(whole(popped), Pop(queue="q")))
    async with asyncio.timeout(BOUND):
        while broker.measures.pop_steps["delivered"] < 2:  # noqa: ASYNC110 - the very turn counts
            await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert payloads(await bounded(wait_for(broker, "q"))) == [b"1"]


async def test_a_call_that_was_given_up_gives_back_what_it_leases_later(
    start_broker: StartBroker, watched: Watched, clock: ManualClock
) -> None:
    broker = await start_broker(store_timeout_seconds=0.2)
    await push_numbers(broker, 2)
    popped = await pop(broker, "q")
    gate = watched.hold_answers("ack_and_pop")
    with pytest.raises(StoreUnavailableError):
        await bounded(broker.submit_ack_and_pop(whole(popped), Pop(queue="q")))
    gate.set()
    clock.advance(10)
    await until(lambda: broker.health().store_ok)
    again = await bounded(wait_for(broker, "q"))
    assert payloads(again) == [b"1"]
    assert again.messages[0].attempts == 1


async def test_a_guilty_request_fails_alone(broker: Broker, watched: Watched) -> None:
    await push_numbers(broker, 8, partitions=4)
    first = [await pop(broker, "q") for _ in range(4)]
    guilty = first[2].lease_id

    def disturb(name: str, acks: Any) -> BaseException | None:
        named = name == "ack_and_pop" and any(ack.lease_id == guilty for ack in acks)
        return RuntimeError("nobody foresaw this") if named else None

    watched.disturb = disturb
    futures = [broker.submit_ack_and_pop(whole(one), Pop(queue="q")) for one in first]
    for popped, future in zip(first, futures, strict=True):
        if popped.lease_id == guilty:
            with pytest.raises(RuntimeError):
                await bounded(future)
        else:
            [acked], then = await bounded(future)
            assert isinstance(acked, Acked)
            assert len(then.messages) == 1


async def test_acks_of_a_call_to_the_store_are_bounded(broker: Broker, watched: Watched) -> None:
    await push(broker, "q")
    await pop(broker, "q")
    acks = [Ack(lease_id=f"{n}-0123456789abcdef") for n in range(1, 601)]
    futures = [broker.submit_ack_and_pop(acks, Pop(queue=f"q{n}")) for n in range(3)]
    for future in futures:
        answers, _ = await bounded(future)
        assert len(answers) == 600
    await turns()
    assert [len(one) for one in watched.requests("ack_and_pop")] == [600] * 3


async def test_acks_and_pops_are_counted_as_such(broker: Broker) -> None:
    await push_numbers(broker, 2)
    popped = await pop(broker, "q")
    await ack_and_pop(broker, popped)
    measures = broker.measures
    assert (measures.ack.calls, measures.ack.messages) == (1, 1)
    assert (measures.pop.calls, measures.pop.messages) == (2, 2)
    assert measures.pop_steps["delivered"] == 2
