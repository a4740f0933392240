"""The reference model itself, against cases worked out by hand from the rules."""

from collections.abc import Sequence
from typing import TypeVar

import pytest

from monarq.clock import ManualClock
from monarq.errors import (
    AlreadyAckedError,
    LeaseError,
    LeaseExpiredError,
    LeaseForeignError,
    LeaseTakenOverError,
    LeaseUnknownError,
    MonarqError,
    QueueFullError,
    TransactionFailedError,
)
from monarq.model import (
    DEFAULT_GROUP,
    Ack,
    AckStatus,
    DeadLetterFilter,
    ItemState,
    Pop,
    Popped,
    Push,
    PushItem,
    PushStatus,
    QueueKind,
    Renew,
    SeekTo,
    StartFrom,
    Transaction,
)
from monarq.operations.dead_letters import Redrive
from monarq.operations.groups import Seek
from tests.store.calls import ack_of
from tests.store.reference import Reference

T = TypeVar("T")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def model(clock: ManualClock) -> Reference:
    return Reference(clock)


def unwrap(answers: Sequence[T | MonarqError]) -> T:
    [answer] = answers
    if isinstance(answer, MonarqError):
        raise answer
    return answer


def push(model: Reference, queue: str, *priorities: int | None) -> None:
    unwrap(model.push([Push([PushItem(queue, b"1", priority=p) for p in priorities])]))


def pop(model: Reference, queue: str, batch: int = 1, group: str = "g") -> Popped:
    if model.world.queues[queue].is_work:
        group = DEFAULT_GROUP
    return unwrap(model.pop([Pop(queue=queue, batch=batch, group=group)]))


def pop_seqs(model: Reference, queue: str, batch: int = 10) -> list[int]:
    return [message.seq for message in pop(model, queue, batch).messages]


def answers(popped: Popped, *statuses: str) -> list[Ack]:
    """One ack for each of the popped messages."""
    return [
        ack_of(message, popped.lease_id, AckStatus(status), group="g")
        for message, status in zip(popped.messages, statuses, strict=True)
    ]


def test_23_items_for_20_6_and_1_give_16_6_and_1(model: Reference) -> None:
    model.configure("w", kind=QueueKind.WORK)
    push(model, "w", *[5] * 23)
    popped = model.pop([Pop(queue="w", batch=batch) for batch in (20, 6, 1)])
    assert [len(unwrap([p]).messages) for p in popped] == [16, 6, 1]


def test_waiting_makes_up_for_priority_one_push_at_a_time(model: Reference) -> None:
    model.configure("w", kind=QueueKind.WORK)
    push(model, "w", 1, 3, 3, 4)  # the effective priorities are then 4, 5, 4, 4
    assert [item.effective_priority for item in model.world.queues["w"].items] == [4, 5, 4, 4]
    assert pop_seqs(model, "w") == [2, 1, 3, 4]


def test_a_leased_item_does_not_age_and_a_retried_one_starts_at_the_tail(
    model: Reference,
) -> None:
    model.configure("w", kind=QueueKind.WORK)
    push(model, "w", 5, 5)
    first = pop(model, "w")
    push(model, "w", 5)
    model.ack(answers(first, "release"))
    assert [item.effective_priority for item in model.world.queues["w"].items] == [6, 6, 5]
    assert pop_seqs(model, "w", 1) == [1]


def test_completed_failed_completed_delivers_the_failed_one_again_alone(
    model: Reference, clock: ManualClock
) -> None:
    push(model, "q", None, None, None)
    popped = pop(model, "q", 10)
    acks = answers(popped, "completed", "failed", "completed")
    acked = [unwrap([answer]) for answer in model.ack(acks)]
    assert [answer.lease_released for answer in acked] == [False, False, True]
    assert pop_seqs(model, "q") == []
    clock.advance(1)
    [again] = pop(model, "q", 10).messages
    assert (again.seq, again.attempts) == (2, 2)


def test_a_message_that_kills_its_consumers_dies(model: Reference, clock: ManualClock) -> None:
    model.configure("q", options={"retryLimit": 1, "leaseTime": 10})
    push(model, "q", None, None)
    for _ in range(2):
        assert pop_seqs(model, "q", 1) == [1]
        clock.advance(10)
    assert pop_seqs(model, "q", 1) == [2]
    [letter] = model.list_dead_letters(DeadLetterFilter(queue="q"))
    assert (letter.seq, letter.attempts) == (1, 2)


def test_each_lease_that_does_not_hold_has_its_own_error(
    model: Reference, clock: ManualClock
) -> None:
    model.configure("q", options={"leaseTime": 10, "retryLimit": 9})
    unwrap(model.push([Push([PushItem("q", b"1"), PushItem("q", b"1", "other")])]))
    first = pop(model, "q")
    [ack] = answers(first, "completed")
    [message] = first.messages

    def error(lease_id: str | None) -> type[LeaseError]:
        [answer] = model.ack([ack_of(message, lease_id, group="g")])
        assert isinstance(answer, LeaseError)
        return type(answer)

    other = pop(model, "q")
    assert error(other.lease_id) is LeaseForeignError
    assert error("999-0000000000000000") is LeaseUnknownError
    clock.advance(10)
    assert error(first.lease_id) is LeaseExpiredError
    assert error(None) is LeaseExpiredError
    second = pop(model, "q")
    assert error(first.lease_id) is LeaseTakenOverError
    unwrap(model.ack(answers(second, "completed")))
    assert error(second.lease_id) is AlreadyAckedError
    assert error(None) is LeaseExpiredError
    assert ack.lease_id == first.lease_id


def test_a_failed_transaction_leaves_nothing_behind(model: Reference) -> None:
    push(model, "q", None)
    popped = pop(model, "q")
    [good] = answers(popped, "completed")
    bad = Ack(lease_id="9-0000000000000000")
    [answer] = model.transaction([Transaction([good, bad, Push([PushItem("new", b"1")])])])
    assert isinstance(answer, TransactionFailedError)
    assert answer.operation == 1
    assert isinstance(answer.cause, LeaseUnknownError)
    assert set(model.world.queues) == {"q"}
    unwrap(model.ack([good]))


def test_duplicates_name_the_first_and_do_not_fill_the_queue(model: Reference) -> None:
    model.configure("q", options={"maxSize": 2})
    items = [PushItem("q", b"1", transaction_id=name) for name in "aab"]
    pushed = unwrap(model.push([Push(items)]))
    assert [(p.status, p.seq) for p in pushed] == [
        (PushStatus.QUEUED, 1),
        (PushStatus.DUPLICATE, 1),
        (PushStatus.QUEUED, 2),
    ]
    unwrap(model.push([Push(items)]))
    with pytest.raises(QueueFullError):
        push(model, "q", None)


def test_new_begins_behind_the_last_but_later_partitions_at_their_beginning(
    model: Reference,
) -> None:
    push(model, "q", None)
    model.subscribe("g", StartFrom.NEW, queue="q")
    assert pop_seqs(model, "q") == []
    unwrap(model.push([Push([PushItem("q", b"1"), PushItem("q", b"1", "later")])]))
    popped = unwrap(model.pop([Pop(queue="q", group="g", batch=9, partitions=9)]))
    assert [(m.partition, m.seq) for m in popped.messages] == [("Default", 2), ("later", 1)]


def test_a_seek_back_replays_and_ends_the_lease(model: Reference) -> None:
    push(model, "q", None, None)
    popped = pop(model, "q", 2)
    first, second = answers(popped, "completed", "completed")
    unwrap(model.ack([first]))
    assert model.seek(Seek(group="g", queue="q", to=SeekTo.START)) == 2
    with pytest.raises(LeaseExpiredError):
        unwrap(model.ack([second]))
    assert pop_seqs(model, "q") == [1, 2]


def test_failed_items_back_off_and_die_after_their_attempts(
    model: Reference, clock: ManualClock
) -> None:
    model.configure("w", kind=QueueKind.WORK, options={"maxAttempts": 3, "backoffBase": 3})
    push(model, "w", 5)
    [item] = model.world.queues["w"].items
    for seconds in (3, 9):
        unwrap(model.ack(answers(pop(model, "w"), "failed")))
        assert item.run_at == clock.now() + seconds * 1_000_000
        clock.advance(seconds)
    unwrap(model.ack(answers(pop(model, "w"), "failed")))
    assert item.state is ItemState.DEAD
    assert model.redrive(Redrive(queue="w")) == 1
    assert (item.state, item.attempts) == (ItemState.READY, 0)


def test_a_renewed_lease_is_never_nearer(model: Reference, clock: ManualClock) -> None:
    model.configure("q", options={"leaseTime": 10})
    push(model, "q", None)
    lease_id = pop(model, "q").lease_id
    assert lease_id is not None
    start = clock.now()
    assert unwrap(model.renew([Renew(lease_id, 5)])).expires_at == start + 10_000_000
    assert unwrap(model.renew([Renew(lease_id, 20)])).expires_at == start + 20_000_000


def test_the_dead_move_to_the_dead_queue_once(model: Reference) -> None:
    model.configure("graves")
    model.configure("q", options={"deadQueue": "graves", "retryLimit": 0})
    push(model, "q", None)
    for group in ("g", "h"):
        popped = pop(model, "q", group=group)
        unwrap(model.ack([Ack(status=AckStatus.DEAD, lease_id=popped.lease_id, error="no")]))
    [message] = pop(model, "graves", 9).messages
    assert message.transaction_id == "1-1"
    assert b'"monarqDeadFrom":"q"' in (message.headers or b"")
