"""Queues that run commands: nothing becomes a command that was not enqueued as one."""

from typing import Any

import pytest

from monarq.clock import ManualClock
from monarq.errors import (
    CommandsRefusedError,
    ConflictError,
    InvalidRequestError,
    MonarqError,
    TransactionFailedError,
)
from monarq.model import AckStatus, DeadLetterFilter, Push, PushItem, QueueKind, Transaction
from monarq.store import Store
from tests.store.calls import ack, pop_one, push, unwrap

pytestmark = pytest.mark.smoke

RM = b'{"command":"rm -rf /"}'


@pytest.fixture
async def jobs(store: Store) -> str:
    await store.configure("jobs", kind=QueueKind.WORK, options={"runsCommands": True})
    return "jobs"


async def push_command(store: Store, queue: str, payload: bytes = RM, **fields: Any) -> None:
    unwrap(await store.push([Push([PushItem(queue, payload, **fields)], commands=True)]))


async def test_a_command_is_stored_where_commands_are_run(store: Store, jobs: str) -> None:
    await push_command(store, jobs)
    message, _ = await pop_one(store, jobs)
    assert message.payload == RM


async def test_a_plain_push_to_a_queue_that_runs_commands_is_refused(
    store: Store, jobs: str
) -> None:
    with pytest.raises(CommandsRefusedError, match="'jobs' runs commands"):
        await push(store, jobs, RM)
    assert (await store.get_queue(jobs)).counts.pushed == 0


@pytest.mark.parametrize("made", [True, False])
async def test_a_command_for_a_queue_that_runs_none_is_refused(store: Store, made: bool) -> None:
    if made:
        await store.configure("plain", kind=QueueKind.WORK)
    with pytest.raises(CommandsRefusedError, match="runsCommands"):
        await push_command(store, "plain")
    assert len((await store.list_queues()).rows) == made


async def test_one_refused_item_refuses_the_whole_request(store: Store, jobs: str) -> None:
    [outcome] = await store.push([Push([PushItem("plain", b"1"), PushItem(jobs, RM)])])
    assert isinstance(outcome, CommandsRefusedError)
    assert [queue.name for queue in (await store.list_queues()).rows] == [jobs]


async def test_requests_of_one_call_are_judged_each_by_itself(store: Store, jobs: str) -> None:
    outcomes = await store.push(
        [
            Push([PushItem(jobs, RM)], commands=True),
            Push([PushItem(jobs, RM)]),
            Push([PushItem("plain", b"1")]),
        ]
    )
    refused = [isinstance(outcome, MonarqError) for outcome in outcomes]
    assert refused == [False, True, False]


async def test_a_transaction_does_not_get_around_it(store: Store, jobs: str) -> None:
    [outcome] = await store.transaction([Transaction([Push([PushItem(jobs, RM)])])])
    assert isinstance(outcome, TransactionFailedError)
    assert isinstance(outcome.cause, CommandsRefusedError)
    allowed = Transaction([Push([PushItem(jobs, RM)], commands=True)])
    unwrap(await store.transaction([allowed]))


async def test_whether_a_queue_runs_commands_is_chosen_when_it_is_made(
    store: Store, jobs: str
) -> None:
    await store.configure("plain", kind=QueueKind.WORK)
    for name, mark in (("plain", True), (jobs, False)):
        with pytest.raises(ConflictError, match="when it was made"):
            await store.configure(name, options={"runsCommands": mark})
    await store.configure(jobs, options={"runsCommands": True, "maxAttempts": 7})
    assert (await store.get_queue(jobs)).options.max_attempts == 7


async def test_an_ordered_queue_cannot_run_commands(store: Store) -> None:
    with pytest.raises(InvalidRequestError, match="work queues"):
        await store.configure("o", options={"runsCommands": True})


async def test_what_dies_elsewhere_does_not_become_a_command(store: Store, jobs: str) -> None:
    with pytest.raises(InvalidRequestError, match="runs commands"):
        await store.configure("plain", kind=QueueKind.WORK, options={"deadQueue": jobs})
    await store.configure("plain", kind=QueueKind.WORK)
    with pytest.raises(InvalidRequestError, match="runs commands"):
        await store.configure("plain", options={"deadQueue": jobs})


async def test_a_dead_command_may_be_moved_to_a_queue_that_runs_none(
    store: Store, jobs: str
) -> None:
    await store.configure("grave", kind=QueueKind.WORK)
    await store.configure(jobs, options={"deadQueue": "grave"})
    await push_command(store, jobs)
    message, lease = await pop_one(store, jobs)
    await ack(store, message, lease, AckStatus.DEAD)
    dead, _ = await pop_one(store, "grave")
    assert dead.payload == RM


async def test_a_dead_letter_is_not_redriven_into_a_command(
    store: Store, jobs: str, clock: ManualClock
) -> None:
    await push(store, "plain", RM)
    message, lease = await pop_one(store, "plain")
    await ack(store, message, lease, AckStatus.DEAD)
    for which in ({"all": True}, {"queue": "plain"}, {"ids": [1]}):
        with pytest.raises(CommandsRefusedError, match="redrive"):
            await store.redrive(**which, to_queue=jobs)
    assert await store.count_dead_letters(DeadLetterFilter()) == 1


async def test_a_dead_command_is_redriven_to_its_queue_or_another_that_runs_commands(
    store: Store, jobs: str
) -> None:
    await store.configure("more", kind=QueueKind.WORK, options={"runsCommands": True})
    for to in (None, "more"):
        await push_command(store, jobs)
        message, lease = await pop_one(store, jobs)
        await ack(store, message, lease, AckStatus.DEAD)
        assert await store.redrive(queue=jobs, to_queue=to) == 1
        redriven, lease = await pop_one(store, to or jobs)
        assert redriven.payload == RM
        await ack(store, redriven, lease, AckStatus.COMPLETED)
