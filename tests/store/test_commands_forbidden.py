"""A caller who may not work on shell commands: every call that would change an item of a queue that
runs commands is refused, and changes nothing. On all other queues these calls work as ever."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from monarq.errors import ForbiddenError, MonarqError, TransactionFailedError
from monarq.model import (
    Ack,
    AckStatus,
    DeadLetterFilter,
    Item,
    LoggedAttempt,
    Message,
    Pop,
    Push,
    PushItem,
    QueueKind,
    Renew,
    Transaction,
)
from monarq.operations.dead_letters import PurgeDeadLetters, Redrive
from monarq.operations.items import AppendOutput, CancelItem, RetryItem
from monarq.operations.messages import DeleteMessage
from monarq.operations.queues import (
    ClearQueue,
    Configure,
    DeleteQueue,
    PauseQueue,
    ResumeQueue,
)
from monarq.store import Store
from monarq.store.contract import Outcome
from tests.store.calls import ack, ack_of, pop, pop_one, unwrap

pytestmark = pytest.mark.smoke

LS = b'{"command":"ls"}'


@pytest.fixture(params=["jobs", "plain"])
async def queue(request: pytest.FixtureRequest, store: Store) -> str:
    """One that runs commands, and one that does not."""
    for name in ("jobs", "more"):
        await store.configure(name, kind=QueueKind.WORK, options={"runsCommands": True})
    for name in ("plain", "other"):
        await store.configure(name, kind=QueueKind.WORK)
    return str(request.param)


async def push_to(store: Store, queue: str) -> str:
    items = [PushItem(queue, LS)]
    [pushed] = unwrap(await store.push([Push(items, commands=queue == "jobs")]))
    return pushed.message_id


async def state(store: Store, queue: str) -> tuple[list[Item], list[LoggedAttempt], int]:
    items = (await store.list_items(queue)).rows
    attempts = (await store.list_attempts(queue=queue)).rows
    letters = await store.count_dead_letters(DeadLetterFilter(queue=queue))
    return items, attempts, letters


async def tried(
    store: Store, queue: str, *calls: Callable[[], Awaitable[Any]]
) -> list[type[BaseException] | None]:
    """What each call meets. One that is refused has changed nothing."""
    met: list[type[BaseException] | None] = []
    for call in calls:
        before = await state(store, queue)
        try:
            answer = await call()
            errors = [one for one in answer if isinstance(one, MonarqError)] if answer else []
        except TransactionFailedError as error:
            errors = [error.cause]
        except MonarqError as error:
            errors = [error]
        if errors:
            assert await state(store, queue) == before
            assert "needs the role jobs or admin" in str(errors[0])
        met.append(type(errors[0]) if errors else None)
    return met


def expected(queue: str) -> type[BaseException] | None:
    return ForbiddenError if queue == "jobs" else None


async def test_pops(store: Store, queue: str) -> None:
    for _ in range(3):
        await push_to(store, queue)
    pops = [Pop(queue=queue, commands=False), Pop(queue=queue, auto_ack=True, commands=False)]
    calls = [lambda one=one: store.pop([one]) for one in pops]

    async def after_acks() -> list[Outcome[Any]]:
        return (await store.ack_and_pop([], pops[:1]))[1]

    assert await tried(store, queue, *calls, after_acks) == [expected(queue)] * 3


async def test_a_pop_of_an_empty_or_paused_queue(store: Store, queue: str) -> None:
    one = Pop(queue=queue, commands=False)
    empty = await tried(store, queue, lambda: store.pop([one]))
    await push_to(store, queue)
    await store.pause_queue(queue)
    paused = await tried(store, queue, lambda: store.pop([one]))
    assert empty == paused == [expected(queue)]


async def test_pops_of_one_call_are_judged_each_by_itself(store: Store, queue: str) -> None:
    await push_to(store, queue)
    first, second, third = await store.pop(
        [
            Pop(queue=queue, commands=False, batch=1),
            Pop(queue=queue, batch=1),
            Pop(queue="nothing", commands=False),
        ]
    )
    if queue == "jobs":
        assert isinstance(first, ForbiddenError)
        assert len(unwrap([second]).messages) == 1
    else:
        assert len(unwrap([first]).messages) == 1
    assert not unwrap([third]).messages


async def leased(store: Store, queue: str) -> tuple[Message, str]:
    await push_to(store, queue)
    return await pop_one(store, queue)


def answer(message: Message, lease: str, *, whole: bool, **fields: Any) -> Ack:
    """To one item, or to all under the lease."""
    if whole:
        return Ack(lease_id=lease, commands=False, **fields)
    return ack_of(message, lease, commands=False, **fields)


WHOLE = pytest.mark.parametrize("whole", [False, True])


@WHOLE
@pytest.mark.parametrize("status", list(AckStatus))
async def test_acks_of_every_status(
    store: Store, queue: str, status: AckStatus, whole: bool
) -> None:
    one = answer(*await leased(store, queue), whole=whole, status=status)
    assert await tried(store, queue, lambda: store.ack([one])) == [expected(queue)]


async def test_acks_without_a_lease_id_and_with_a_wrong_one(store: Store, queue: str) -> None:
    message, _ = await leased(store, queue)
    [outcome] = await store.ack([ack_of(message, None, commands=False)])
    assert isinstance(outcome, ForbiddenError) is (queue == "jobs")
    [outcome] = await store.ack([ack_of(message, "999-abc", commands=False)])
    assert isinstance(outcome, ForbiddenError) is (queue == "jobs")


@WHOLE
async def test_acks_that_go_with_pops(store: Store, queue: str, whole: bool) -> None:
    one = answer(*await leased(store, queue), whole=whole)

    async def call() -> list[Outcome[Any]]:
        return (await store.ack_and_pop([one], [Pop(queue="nothing")]))[0]

    assert await tried(store, queue, call) == [expected(queue)]


async def test_acks_of_one_call_are_judged_each_by_itself(store: Store, queue: str) -> None:
    """Many that complete items of one queue, from callers of either kind."""
    for _ in range(4):
        await push_to(store, queue)
    popped = await pop(store, queue, 4)
    outcomes = await store.ack(
        [
            ack_of(message, popped.lease_id, commands=bool(number % 2))
            for number, message in enumerate(popped.messages)
        ]
    )
    refused = [isinstance(outcome, ForbiddenError) for outcome in outcomes]
    assert refused == [queue == "jobs", False] * 2


async def test_renewals(store: Store, queue: str) -> None:
    _, lease = await leased(store, queue)
    _, other = await leased(store, queue)
    renews = [Renew(lease, 5000, commands=False), Renew(other, 5000, commands=True)]
    first, second = await store.renew(renews)
    assert isinstance(first, ForbiddenError) is (queue == "jobs")
    assert unwrap([second]).lease_id == other
    one, another = (await store.list_items(queue)).rows
    assert (one.lease_until == another.lease_until) is (queue == "plain")


async def test_renewals_of_one_lease_by_callers_of_either_kind(store: Store, queue: str) -> None:
    _, lease = await leased(store, queue)
    outcomes = await store.renew(
        [Renew(lease, 9000, commands=False), Renew(lease, 5000), Renew("7-abc", 1, commands=False)]
    )
    assert isinstance(outcomes[0], ForbiddenError) is (queue == "jobs")
    [item] = (await store.list_items(queue)).rows
    assert item.lease_until is not None
    if queue == "jobs":
        assert unwrap([outcomes[1]]).expires_at == item.lease_until


@WHOLE
async def test_transactions(store: Store, queue: str, whole: bool) -> None:
    one = answer(*await leased(store, queue), whole=whole)
    asked = Transaction([Push([PushItem("ordered", b"1")]), one])

    async def call() -> None:
        unwrap(await store.transaction([asked]))

    assert await tried(store, queue, call) == [expected(queue)]
    names = [row.name for row in (await store.list_queues()).rows]
    assert ("ordered" in names) is (queue == "plain")


async def test_items_by_their_id(store: Store, queue: str) -> None:
    item_id = await push_to(store, queue)
    output = AppendOutput(item_id=item_id, attempt=1, data=b"x")
    met = await tried(
        store,
        queue,
        lambda: nothing(store.call(output, commands=False)),
        lambda: nothing(store.call(CancelItem(item_id=item_id), commands=False)),
        lambda: nothing(store.call(RetryItem(item_id=item_id), commands=False)),
    )
    assert met == [expected(queue)] * 3
    assert (await store.read_output(item_id, 1)).data == (b"" if queue == "jobs" else b"x")
    [item] = (await store.list_items(queue)).rows
    delete = DeleteMessage(partition_id=item.partition_id, transaction_id=item.transaction_id)
    met = await tried(store, queue, lambda: nothing(store.call(delete, commands=False)))
    assert met == [expected(queue)]


async def nothing(call: Awaitable[Any]) -> None:
    await call


@pytest.mark.parametrize("named", ["queue", "ids", "all"])
@pytest.mark.parametrize("to", [None, "other"])
async def test_dead_letters(store: Store, queue: str, named: str, to: str | None) -> None:
    message, lease = await leased(store, queue)
    await ack(store, message, lease, AckStatus.DEAD)
    [letter] = (await store.list_dead_letters(DeadLetterFilter())).rows
    which = {
        "queue": {"queue": queue},
        "ids": {"ids": [letter.id]},
        "all": {"all": True},
    }[named]
    calls = [lambda: nothing(store.call(Redrive(**which, to_queue=to), commands=False))]
    if queue == "jobs":
        calls.append(lambda: nothing(store.call(PurgeDeadLetters(**which), commands=False)))
    assert await tried(store, queue, *calls) == [expected(queue)] * len(calls)


async def test_dead_letters_of_other_queues_are_redriven_and_purged(
    store: Store, queue: str
) -> None:
    for name in ("jobs", "plain"):
        message, lease = await leased(store, name)
        await ack(store, message, lease, AckStatus.DEAD)
    for whole in (Redrive(all=True), PurgeDeadLetters(all=True)):
        with pytest.raises(ForbiddenError):
            await store.call(whole, commands=False)
    assert await store.call(Redrive(queue="plain"), commands=False) == 1
    message, lease = await pop_one(store, "plain")
    await ack(store, message, lease, AckStatus.DEAD)
    assert await store.call(PurgeDeadLetters(queue="plain"), commands=False) == 1
    assert await store.count_dead_letters(DeadLetterFilter(queue="jobs")) == 1


async def test_the_queue_of_an_item_counts_not_its_name(store: Store, queue: str) -> None:
    """An item of a queue that was deleted, and made again as another one."""
    message, lease = await leased(store, "jobs")
    await store.delete_queue("jobs")
    await store.configure("jobs", kind=QueueKind.WORK)
    [outcome] = await store.ack([ack_of(message, lease, commands=False)])
    assert isinstance(outcome, MonarqError)
    unwrap(await store.push([Push([PushItem("jobs", b"1")])]))
    [popped] = await store.pop([Pop(queue="jobs", commands=False)])
    assert len(unwrap([popped]).messages) == 1
    await store.delete_queue("jobs")
    await store.configure("jobs", kind=QueueKind.WORK, options={"runsCommands": True})
    await push_to(store, "jobs")
    [refused] = await store.pop([Pop(queue="jobs", commands=False)])
    assert isinstance(refused, ForbiddenError)


async def test_ordered_queues_and_labels_are_for_everybody(store: Store) -> None:
    await store.configure("o", namespace="n")
    await store.configure(
        "jobs", kind=QueueKind.WORK, namespace="n", options={"runsCommands": True}
    )
    await push_to(store, "jobs")
    unwrap(await store.push([Push([PushItem("o", b"1")])]))
    popped = unwrap(await store.pop([Pop(namespace="n", batch=10, commands=False)]))
    assert [message.queue for message in popped.messages] == ["o"]
    assert popped.lease_id is not None
    unwrap(await store.renew([Renew(popped.lease_id, 100, commands=False)]))
    unwrap(await store.ack([Ack(lease_id=popped.lease_id, commands=False)]))


async def test_options_of_a_queue_that_runs_commands(store: Store, queue: str) -> None:
    """They can kill what waits, or move what dies to a queue that others may pop from."""
    await push_to(store, queue)
    before = await store.queue_settings(queue)
    for options in ({"expireTimeout": 0.001}, {"deadQueue": "other"}, {}):
        met = await tried(
            store,
            queue,
            lambda options=options: nothing(
                store.call(Configure(queue=queue, options=options), commands=False)
            ),
        )
        assert met == [expected(queue)]
    assert (await store.queue_settings(queue) == before) is (queue == "jobs")


async def test_clearing_pausing_and_deleting_a_queue(store: Store, queue: str) -> None:
    """They end the commands that run, or keep them from running."""
    await leased(store, queue)
    calls = [
        lambda: nothing(store.call(PauseQueue(queue=queue), commands=False)),
        lambda: nothing(store.call(ResumeQueue(queue=queue), commands=False)),
        lambda: nothing(store.call(ClearQueue(queue=queue, keep_leased=True), commands=False)),
        lambda: nothing(store.call(ClearQueue(queue=queue), commands=False)),
    ]
    assert await tried(store, queue, *calls) == [expected(queue)] * 4
    assert not (await store.get_queue(queue)).paused
    if queue == "jobs":
        with pytest.raises(ForbiddenError):
            await store.call(DeleteQueue(queue=queue), commands=False)
    else:
        assert (await store.call(DeleteQueue(queue=queue), commands=False)).deleted
    assert (await store.delete_queue(queue)).deleted is (queue == "jobs")
    assert not (await store.call(DeleteQueue(queue=queue), commands=False)).deleted


async def test_a_queue_that_runs_commands_is_not_made(store: Store) -> None:
    options = {"runsCommands": True}
    with pytest.raises(ForbiddenError):
        await store.call(
            Configure(queue="new", kind=QueueKind.WORK, options=options), commands=False
        )
    assert (await store.list_queues()).rows == []
    await store.configure("new", kind=QueueKind.WORK, options=options)
    await store.call(Configure(queue="plain", kind=QueueKind.WORK), commands=False)
