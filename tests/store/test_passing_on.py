"""What acks free goes on to the pops of the same call: all is as after the acks, and then the pops,
in two calls, whatever is special about any of it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from monarq.clock import ManualClock
from monarq.errors import MonarqError
from monarq.model import DEFAULT_GROUP, Ack, Acked, Pop, Popped, PushItem
from monarq.store import Store
from tests.store.calls import ack_of, code_of, pop, push, push_items, push_many
from tests.store.conftest import OpenStore, Place
from tests.store.scenarios import FAILED, every, numbers, stats
from tests.store.waiting import wait_until

pytestmark = pytest.mark.smoke

Scene = Callable[[Store, ManualClock, str], Awaitable[tuple[list[Ack], list[Pop]]]]
SCENES: list[Scene] = []
UNKNOWN = "4611686018427387904-0123456789abcdef"


def scene(made: Scene) -> Scene:
    """Something made in a queue, and what is then acked and popped there."""
    SCENES.append(made)
    return made


async def held(store: Store, queue: str, *lengths: int, **fields: Any) -> list[Popped]:
    """So many messages in each partition, and a lease on each."""
    for number, length in enumerate(lengths):
        await push_many(store, queue, length, partition=f"p{number}")
    return good(await store.pop([Pop(queue=queue, **fields)] * len(lengths)))


def whole(popped: list[Popped]) -> list[Ack]:
    return [Ack(lease_id=one.lease_id) for one in popped]


def each(popped: list[Popped]) -> list[Ack]:
    return [ack_of(message, one.lease_id) for one in popped for message in one.messages]


def good(outcomes: list[Popped | MonarqError]) -> list[Popped]:
    return [one for one in outcomes if isinstance(one, Popped)]


@scene
async def as_many_pops_as_leases(store: Store, _: ManualClock, queue: str) -> Any:
    return whole(await held(store, queue, 3, 3, 3)), [Pop(queue=queue)] * 3


@scene
async def acks_by_message(store: Store, _: ManualClock, queue: str) -> Any:
    return each(await held(store, queue, 5, 5, batch=2)), [Pop(queue=queue, batch=2)] * 2


@scene
async def acks_in_another_order(store: Store, _: ManualClock, queue: str) -> Any:
    first, second, third = await held(store, queue, 3, 4, 5, batch=2)
    return whole([third, first, second]), [Pop(queue=queue, batch=3)] * 3


@scene
async def fewer_pops(store: Store, _: ManualClock, queue: str) -> Any:
    return whole(await held(store, queue, 3, 3, 3)), [Pop(queue=queue)] * 2


@scene
async def more_pops(store: Store, _: ManualClock, queue: str) -> Any:
    held_back, *rest = await held(store, queue, 3, 3, 3, lease_seconds=40)
    assert held_back.messages
    return whole(rest), [Pop(queue=queue)] * 4


@scene
async def some_are_drained(store: Store, _: ManualClock, queue: str) -> Any:
    return whole(await held(store, queue, 1, 3, 1, 3)), [Pop(queue=queue)] * 4


@scene
async def all_are_drained(store: Store, _: ManualClock, queue: str) -> Any:
    return whole(await held(store, queue, 1, 1)), [Pop(queue=queue)] * 2


@scene
async def each_pop_wants_something_else(store: Store, _: ManualClock, queue: str) -> Any:
    pops = [
        Pop(queue=queue, batch=2, lease_seconds=7),
        Pop(queue=queue, consumer="anna"),
        Pop(queue=queue, batch=9, lease_seconds=70, consumer="berta"),
    ]
    return whole(await held(store, queue, 5, 5, 5, consumer="clara")), pops


@scene
async def another_partition_waits(store: Store, clock: ManualClock, queue: str) -> Any:
    popped = await held(store, queue, 3, 3)
    await push_many(store, queue, 2, partition="a")
    clock.advance(1)
    return whole(popped), [Pop(queue=queue)] * 2


@scene
async def another_lease_has_expired(store: Store, clock: ManualClock, queue: str) -> Any:
    await held(store, queue, 3, lease_seconds=1)
    await push_many(store, queue, 3, partition="q")
    popped = await pop(store, queue)
    clock.advance(2)
    return whole([popped]), [Pop(queue=queue)] * 2


@scene
async def one_of_the_leases_has_expired(store: Store, clock: ManualClock, queue: str) -> Any:
    [first] = await held(store, queue, 3, lease_seconds=1)
    await push_many(store, queue, 3, partition="q")
    second = await pop(store, queue)
    clock.advance(1)
    return whole([first, second]), [Pop(queue=queue)] * 2


@scene
async def one_lease_is_acked_twice(store: Store, _: ManualClock, queue: str) -> Any:
    first, second = await held(store, queue, 3, 3)
    return whole([first, second, first]), [Pop(queue=queue)] * 3


@scene
async def one_covers_two_partitions_and_one_is_unknown(
    store: Store, _: ManualClock, queue: str
) -> Any:
    for number in range(2):
        await push_many(store, queue, 3, partition=f"p{number}")
    popped = await pop(store, queue, 2, partitions=2)
    return [*whole([popped]), Ack(lease_id=UNKNOWN)], [Pop(queue=queue)] * 2


@scene
async def one_answers_only_a_part(store: Store, _: ManualClock, queue: str) -> Any:
    first, second = await held(store, queue, 5, 5, batch=2)
    return [*each([first])[:1], *each([second])], [Pop(queue=queue)] * 2


@scene
async def one_names_a_group_that_is_not_its_own(store: Store, _: ManualClock, queue: str) -> Any:
    first, second = await held(store, queue, 3, 3)
    [message] = second.messages
    wrong = ack_of(message, second.lease_id, group="other")
    return [*each([first]), wrong], [Pop(queue=queue)] * 2


@scene
async def a_message_failed_before(store: Store, clock: ManualClock, queue: str) -> Any:
    await store.configure(queue, options={"retryDelay": 0})
    first, second = await held(store, queue, 3, 3, batch=2)
    await store.ack([ack_of(first.messages[1], first.lease_id, FAILED)])
    clock.advance(1)
    return whole([first, second]), [Pop(queue=queue, batch=3)] * 2


@scene
async def pops_of_another_group(store: Store, _: ManualClock, queue: str) -> Any:
    popped = await held(store, queue, 3, 3)
    await store.pop([Pop(queue=queue, group="g")] * 2)
    return whole(popped), [Pop(queue=queue, group="g")] * 2


@scene
async def pops_of_two_groups(store: Store, _: ManualClock, queue: str) -> Any:
    popped = await held(store, queue, 3, 3)
    theirs = good(await store.pop([Pop(queue=queue, group="g")] * 2))
    pops = [Pop(queue=queue), Pop(queue=queue, group="g")] * 2
    return whole(popped + theirs), pops


@scene
async def pops_that_ack_by_themselves(store: Store, _: ManualClock, queue: str) -> Any:
    popped = await held(store, queue, 3, 3)
    return whole(popped), [Pop(queue=queue, auto_ack=True), Pop(queue=queue)]


@scene
async def a_pop_of_a_named_partition(store: Store, _: ManualClock, queue: str) -> Any:
    return whole(await held(store, queue, 3, 3)), [Pop(queue=queue, partition="p1")]


@scene
async def a_pop_of_several_partitions(store: Store, _: ManualClock, queue: str) -> Any:
    return whole(await held(store, queue, 3, 3)), [Pop(queue=queue, partitions=2, batch=4)]


@scene
async def the_queue_holds_messages_back(store: Store, clock: ManualClock, queue: str) -> Any:
    await store.configure(queue, options={"delayedProcessing": 5})
    await push_many(store, queue, 2, partition="p")
    clock.advance(5)
    popped = await pop(store, queue)
    await push_many(store, queue, 2, partition="p")
    return whole([popped]), [Pop(queue=queue, batch=9)]


@scene
async def the_queue_is_paused(store: Store, _: ManualClock, queue: str) -> Any:
    popped = await held(store, queue, 3, 3)
    await store.pause_queue(queue)
    return whole(popped), [Pop(queue=queue)] * 2


@scene
async def old_messages_are_given_up(store: Store, clock: ManualClock, queue: str) -> Any:
    await store.configure(queue, options={"maxWaitTimeSeconds": 5})
    popped = await held(store, queue, 3, 3)
    clock.advance(6)
    return whole(popped), [Pop(queue=queue)] * 2


@pytest.mark.parametrize("made", SCENES, ids=lambda made: made.__name__)
async def test_it_is_as_if_the_acks_and_the_pops_had_been_two_calls(
    store: Store, clock: ManualClock, made: Scene
) -> None:
    now = clock.now()
    acks, pops = await made(store, clock, "apart")
    expected_acks = await store.ack(acks)
    expected_pops = await store.pop(pops)
    expected = await everything(store, "apart", expected_acks, expected_pops, now)

    start = clock.now()
    acks, pops = await made(store, clock, "joint")
    got_acks, got_pops = await store.ack_and_pop(acks, pops)
    assert await everything(store, "joint", got_acks, got_pops, start) == expected


async def everything(
    store: Store,
    queue: str,
    acked: list[Acked | MonarqError],
    popped: list[Popped | MonarqError],
    start: int,
) -> Any:
    """What was answered, but for when there may be more, and what is there now; times since the
    start of it."""

    def since(moment: int | None) -> int | None:
        return None if moment is None else moment - start

    figures = await stats(store, queue)
    logged = await every(store.list_deliveries, queue=queue)
    return (
        [
            (one.partition, one.count, one.dead, one.lease_released)
            if isinstance(one, Acked)
            else code_of(one)
            for one in acked
        ],
        [
            (
                [(message.partition, message.seq, message.attempts) for message in one.messages],
                one.lease_id is None,
                since(one.lease_until),
            )
            if isinstance(one, Popped)
            else code_of(one)
            for one in popped
        ],
        (figures.pending, figures.completed, figures.failed, figures.dead),
        sorted(
            (one.partition, one.group, one.consumer, one.first_seq, one.last_seq, one.completed)
            for one in logged
        ),
        [
            (one.partition, one.position, since(one.available_at), since(one.lease_until))
            for one in await every(store.list_cursors, queue, DEFAULT_GROUP)
        ],
    )


async def test_the_partition_that_has_waited_longest_comes_before_what_was_freed(
    store: Store, clock: ManualClock
) -> None:
    popped = await held(store, "q", 3, 3)
    await push(store, "q", b"7", partition="z")
    clock.advance(1)
    _, [first, second, third] = await store.ack_and_pop(whole(popped), [Pop(queue="q")] * 3)
    found = [message.partition for one in good([first, second, third]) for message in one.messages]
    assert found == ["z", "p0", "p1"]


@pytest.mark.parametrize("answers", [whole, each])
async def test_an_ack_whose_answer_was_lost_is_told_that_it_was_carried_out(
    store: Store, answers: Callable[[list[Popped]], list[Ack]]
) -> None:
    popped = await held(store, "q", 3, 3, 1)
    await store.ack_and_pop(answers(popped), [Pop(queue="q")] * 3)
    repeated = await store.ack(each(popped))
    assert [code_of(one) for one in repeated] == ["already_acked"] * 3
    assert (await stats(store, "q")).completed == 3
    # With the pop again too, as a client does that heard nothing.
    repeated, [then] = await store.ack_and_pop(each(popped), [Pop(queue="q")])
    assert [code_of(one) for one in repeated] == ["already_acked"] * 3
    assert isinstance(then, Popped)
    assert then.messages == []


async def test_who_finds_nothing_is_told_when_there_may_be_something(
    store: Store, clock: ManualClock
) -> None:
    await held(store, "q", 2, lease_seconds=40)
    await push_many(store, "q", 2, partition="other")
    popped = await pop(store, "q", lease_seconds=20)
    _, [found, nothing] = await store.ack_and_pop(whole([popped]), [Pop(queue="q")] * 2)
    assert numbers(good([found])[0]) == [2]
    assert isinstance(nothing, Popped)
    assert nothing.next_at == clock.now() + 40_000_000


async def test_messages_that_have_no_room_in_an_answer_stay_for_the_next(store: Store) -> None:
    for number in range(2):
        items = [PushItem("q", b'"%s"' % (b"x" * 98), partition=f"p{number}") for _ in range(6)]
        await push_items(store, *items)
    popped = good(await store.pop([Pop(queue="q")] * 2))
    lengths = []
    for _ in range(3):
        _, then = await store.ack_and_pop(
            whole(popped), [Pop(queue="q", batch=9)] * 2, max_bytes=250
        )
        popped = good(then)
        lengths.append([[message.seq for message in one.messages] for one in popped])
    assert lengths == [[[2, 3]] * 2, [[4, 5]] * 2, [[6]] * 2]
    # A single one always has.
    await push_items(store, *[PushItem("q", b"12345", partition=f"p{n}") for n in range(2)])
    _, then = await store.ack_and_pop(whole(popped), [Pop(queue="q", batch=9)] * 2, max_bytes=1)
    assert [numbers(one) for one in good(then)] == [[12345]] * 2


@pytest.mark.parametrize("place", ["postgres-newest"], indirect=True)
@pytest.mark.parametrize("answers", [whole, each])
async def test_postgres_writes_each_cursor_once(
    store: Store, place: Place, answers: Callable[[list[Popped]], list[Ack]]
) -> None:
    popped = await held(store, "q", 3, 3, 3, 3)
    connection = await asyncpg.connect(place.address)
    try:
        await connection.execute(f"""
            create table {place.schema}.written (id bigint);
            create function {place.schema}.note() returns trigger language plpgsql as $$ begin
                insert into {place.schema}.written values (new.partition_id); return null;
            end $$;
            create trigger note after update on {place.schema}.cursors
                for each row execute function {place.schema}.note();
        """)
        _, then = await store.ack_and_pop(answers(popped), [Pop(queue="q")] * 4)
        assert [numbers(one) for one in good(then)] == [[2]] * 4
        written = await connection.fetch(f"select id from {place.schema}.written order by id")
    finally:
        await connection.close()
    partitions = [message.partition_id for one in popped for message in one.messages]
    assert [row["id"] for row in written] == sorted(partitions)


@pytest.mark.parametrize("place", ["postgres-newest"], indirect=True)
async def test_a_lease_that_is_lost_while_the_call_waits_for_its_cursor_is_not_passed_on(
    store: Store, place: Place
) -> None:
    popped = await held(store, "q", 3, 3)
    connection = await asyncpg.connect(place.address)
    try:
        async with connection.transaction():
            await connection.execute(
                f"update {place.schema}.cursors set lease_no = lease_no + 1000 where lease_no = $1",
                int(str(popped[1].lease_id).split("-")[0]),
            )
            call = asyncio.create_task(store.ack_and_pop(whole(popped), [Pop(queue="q")] * 2))
            watching = await asyncpg.connect(place.address)
            try:
                await wait_until(
                    watching,
                    "exists (select from pg_stat_activity "
                    "where wait_event_type = 'Lock' and query like '%ack_and_pop%')",
                )
            finally:
                await watching.close()
        acked, then = await call
    finally:
        await connection.close()
    assert [code_of(one) for one in acked] == [None, "lease_unknown"]
    assert [numbers(one) for one in good(then)] == [[2], []]


async def test_pushes_to_partitions_that_are_just_drained_are_all_delivered(
    store: Store, open_another: OpenStore
) -> None:
    partitions, length = 6, 30
    seen: dict[str, list[int]] = defaultdict(list)

    async def consume(one: Store) -> None:
        acks: list[Ack] = []
        while sum(map(len, seen.values())) < partitions * length or acks:
            acked, popped = await one.ack_and_pop(acks, [Pop(queue="q")] * 3)
            assert [code for code in map(code_of, acked) if code] == []
            found = good(popped)
            for got in found:
                for message in got.messages:
                    seen[message.partition].append(int(message.payload))
            acks = whole([got for got in found if got.messages])

    async def produce(one: Store, first: int) -> None:
        for n in range(length):
            items = [
                PushItem("q", b"%d" % n, partition=f"p{p}") for p in range(first, partitions, 2)
            ]
            await push_items(one, *items)

    other = await open_another()
    async with asyncio.timeout(60):
        await asyncio.gather(consume(store), consume(other), produce(store, 0), produce(other, 1))
    assert seen == {f"p{p}": list(range(length)) for p in range(partitions)}
    assert (await stats(store, "q")).completed == partitions * length
