"""The mark of a command: each item that was pushed as a shell command has it until it goes, and no
other item ever has it."""

import pytest

from monarq.clock import ManualClock
from monarq.model import (
    Ack,
    AckStatus,
    Pop,
    Push,
    PushColumns,
    PushItem,
    QueueKind,
    Transaction,
)
from monarq.store import Store
from tests.store.calls import ack, ack_all, pop, pop_one, push, unwrap
from tests.store.conftest import OpenStore

RM = b'{"command":"rm -rf /"}'
#: What a sender may try in a payload or in headers.
CLAIM = b'{"isCommand":true,"is_command":true,"commands":true,"command":"id"}'


@pytest.fixture
async def queues(store: Store) -> None:
    for name in ("jobs", "more"):
        await store.configure(name, kind=QueueKind.WORK, options={"runsCommands": True})
    for name in ("plain", "other"):
        await store.configure(name, kind=QueueKind.WORK)


async def enqueue(store: Store, queue: str = "jobs", count: int = 1) -> None:
    items = [PushItem(queue, RM)] * count
    unwrap(await store.push([Push(items, commands=True)]))


async def marks(store: Store, queue: str) -> list[bool]:
    """Of all that a pop finds, which stays under its lease."""
    return [message.is_command for message in (await pop(store, queue, 100)).messages]


async def die(store: Store, queue: str) -> None:
    message, lease = await pop_one(store, queue)
    await ack(store, message, lease, AckStatus.DEAD)


@pytest.mark.usefixtures("queues")
async def test_an_item_has_the_mark_if_it_was_pushed_as_a_command(store: Store) -> None:
    unwrap(await store.push([Push(PushColumns("jobs", "Default", [RM, RM]), commands=True)]))
    unwrap(await store.transaction([Transaction([Push([PushItem("jobs", RM)], commands=True)])]))
    await enqueue(store, count=2)
    assert await marks(store, "jobs") == [True] * 5


@pytest.mark.usefixtures("queues")
async def test_no_other_message_or_item_has_it_whatever_it_says(store: Store) -> None:
    for queue in ("plain", "ordered"):
        await push(store, queue, CLAIM, headers=CLAIM)
        unwrap(await store.push([Push(PushColumns(queue, "Default", [CLAIM]))]))
        unwrap(await store.transaction([Transaction([Push([PushItem(queue, CLAIM)])])]))
        assert await marks(store, queue) == [False] * 3


@pytest.mark.usefixtures("queues")
async def test_of_one_call_each_request_has_its_own(store: Store) -> None:
    await store.push(
        [
            Push([PushItem("plain", RM)]),
            Push([PushItem("jobs", RM), PushItem("more", RM)], commands=True),
            Push([PushItem("other", RM), PushItem("ordered", RM)]),
            Push([PushItem("jobs", RM)], commands=True),
            Push([PushItem("jobs", RM)]),
            Push([PushItem("plain", RM)], commands=True),
        ]
    )
    assert await marks(store, "jobs") == [True] * 2
    assert await marks(store, "more") == [True]
    for queue in ("plain", "other", "ordered"):
        assert await marks(store, queue) == [False]


@pytest.mark.usefixtures("queues")
async def test_pops_of_one_call_and_those_with_auto_ack_are_told_of_it(store: Store) -> None:
    await enqueue(store, count=3)
    popped = await store.pop(
        [Pop(queue="jobs"), Pop(queue="jobs", auto_ack=True), Pop(queue="jobs")]
    )
    assert [unwrap([one]).messages[0].is_command for one in popped] == [True] * 3


@pytest.mark.usefixtures("queues")
async def test_an_item_keeps_it_through_every_state(store: Store, clock: ManualClock) -> None:
    await store.configure("jobs", options={"backoffBase": 0})
    await enqueue(store)

    async def popped_with_mark() -> tuple[str, str]:
        popped = await pop(store, "jobs", lease_seconds=10)
        [message] = popped.messages
        assert message.is_command
        assert popped.lease_id is not None
        return message.id, popped.lease_id

    for status in (AckStatus.RELEASE, AckStatus.FAILED, AckStatus.RETRY):
        item_id, lease = await popped_with_mark()
        unwrap(await store.ack([Ack(status=status, lease_id=lease)]))
        clock.advance(1)
    await store.retry_item(item_id)
    await popped_with_mark()
    clock.advance(11)
    _, lease = await popped_with_mark()
    unwrap(await store.ack([Ack(lease_id=lease)]))
    await store.retry_item(item_id)
    await popped_with_mark()
    await store.cancel_item(item_id)
    await store.retry_item(item_id)
    await popped_with_mark()


@pytest.mark.usefixtures("queues")
async def test_a_dead_command_keeps_it_in_a_dead_queue_that_runs_commands(store: Store) -> None:
    await store.configure("jobs", options={"deadQueue": "more"})
    await enqueue(store)
    await die(store, "jobs")
    assert await marks(store, "more") == [True]


@pytest.mark.usefixtures("queues")
async def test_nothing_has_it_in_a_dead_queue_that_runs_none(store: Store) -> None:
    """Whoever may write may work on such a queue, and retry what is in it."""
    for queue in ("jobs", "plain"):
        await store.configure(queue, options={"deadQueue": "other"})
    await enqueue(store)
    await push(store, "plain", RM)
    for queue in ("jobs", "plain"):
        await die(store, queue)
    assert await marks(store, "other") == [False] * 2


@pytest.mark.usefixtures("queues")
@pytest.mark.parametrize(
    ("source", "to", "marked"),
    [
        ("jobs", None, True),
        ("jobs", "jobs", True),
        ("jobs", "more", True),
        ("jobs", "plain", False),
        ("jobs", "ordered", False),
        ("plain", None, False),
        ("plain", "other", False),
        ("ordered", "plain", False),
    ],
)
async def test_a_redriven_item_has_it_if_it_had_it_and_its_queue_runs_commands(
    store: Store, source: str, to: str | None, marked: bool
) -> None:
    await push(store, "ordered", b"1")
    await ack_all(store, await pop(store, "ordered", 10))
    unwrap(await store.push([Push([PushItem(source, RM)], commands=source == "jobs")]))
    await die(store, source)
    assert await store.redrive(queue=source, to_queue=to) == 1
    assert await marks(store, to or source) == [marked]


@pytest.mark.usefixtures("queues")
async def test_it_is_not_the_name_of_a_queue_that_has_it(store: Store) -> None:
    await enqueue(store)
    assert await marks(store, "jobs") == [True]
    await store.delete_queue("jobs")
    await store.configure("jobs", kind=QueueKind.WORK)
    await push(store, "jobs", RM)
    assert await marks(store, "jobs") == [False]
    await store.delete_queue("jobs")
    await store.configure("jobs", kind=QueueKind.WORK, options={"runsCommands": True})
    await enqueue(store)
    assert await marks(store, "jobs") == [True]


@pytest.mark.usefixtures("queues")
async def test_two_brokers_agree_on_it_when_one_makes_the_queue_again(
    store: Store, open_another: OpenStore
) -> None:
    other = await open_another()
    for one in (store, other):
        await enqueue(one)
    assert await marks(other, "jobs") == [True] * 2
    await store.delete_queue("jobs")
    await store.configure("jobs", kind=QueueKind.WORK)
    [refused] = await other.push([Push([PushItem("jobs", RM)], commands=True)])
    assert getattr(refused, "code", None) == "commands_refused"
    await push(other, "jobs", RM)
    for one in (store, other):
        popped = await pop(one, "jobs")
        assert [message.is_command for message in popped.messages] == [False]
        await ack_all(one, popped, AckStatus.RELEASE)


@pytest.mark.usefixtures("queues")
async def test_changed_options_leave_what_waits_as_it_is(store: Store) -> None:
    await enqueue(store)
    await push(store, "plain", RM)
    for queue in ("jobs", "plain"):
        await store.configure(queue, options={"maxAttempts": 9, "defaultPriority": 1})
        await store.pause_queue(queue)
        await store.resume_queue(queue)
    await enqueue(store)
    await push(store, "plain", RM)
    assert await marks(store, "jobs") == [True] * 2
    assert await marks(store, "plain") == [False] * 2
