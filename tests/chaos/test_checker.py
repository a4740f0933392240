"""The history checker: a good history passes, and every made-up bad one is found out."""

from collections.abc import Callable, Sequence

import pytest

from tests.chaos.checker import Rules, check
from tests.chaos.events import (
    AckAnswered,
    AckAsked,
    Event,
    Popped,
    PushAnswered,
    PushUnanswered,
    Seen,
)

RULES = Rules(groups={"q": ["g"]}, ordered={"q"}, lease_seconds=2, max_attempts=4)


def pushed(*numbers: int, sender: str = "s", status: str = "queued") -> PushAnswered:
    return PushAnswered("q", sender, list(numbers), [status] * len(numbers), 0)


def unknown(*numbers: int, sender: str = "s") -> PushUnanswered:
    return PushUnanswered("q", sender, list(numbers), "no answer", False, 0)


def popped(
    lease: int,
    *seqs: int,
    at: float = 0,
    attempts: int = 1,
    numbers: Sequence[int] = (),
    sender: str = "s",
    partition: int = 1,
) -> Popped:
    """Message `seq` is the sender's number `seq`, unless the numbers are given."""
    messages = [
        Seen(partition, seq, sender, number, attempts)
        for seq, number in zip(seqs, numbers or seqs, strict=True)
    ]
    return Popped("q", "g", "c", lease, messages, at, at + 0.01)


def asked(lease: int, *seqs: int, status: str = "completed", at: float = 0) -> AckAsked:
    return AckAsked("q", "g", "c", lease, status, [(1, seq) for seq in seqs], at)


def answered(
    lease: int, seq: int, error: str | None = None, status: str = "completed"
) -> AckAnswered:
    return AckAnswered("q", "g", "c", lease, status, (1, seq), error, 0)


def acked(lease: int, *seqs: int) -> list[Event]:
    return [asked(lease, *seqs), *(answered(lease, seq) for seq in seqs)]


GOOD: dict[str, list[Event]] = {
    "all well": [pushed(1, 2, 3), popped(1, 1, 2), *acked(1, 1, 2), popped(2, 3), *acked(2, 3)],
    "buffered": [pushed(1, status="buffered"), popped(1, 1), *acked(1, 1)],
    "nobody knows of a push, and it is there": [unknown(1), popped(1, 1), *acked(1, 1)],
    "nobody knows of a push, and it is not there": [unknown(1)],
    "a push without an answer may come late": [
        unknown(1),
        pushed(2),
        popped(1, 1, 2, numbers=[2, 1]),
        *acked(1, 1, 2),
    ],
    "redelivered after its lease": [
        pushed(1),
        popped(1, 1, at=0),
        popped(2, 1, at=2.5, attempts=2),
        *acked(2, 1),
    ],
    "redelivered at once after it failed": [
        pushed(1),
        popped(1, 1, at=0),
        asked(1, 1, status="failed"),
        popped(2, 1, at=0.1, attempts=2),
        *acked(2, 1),
    ],
    "not counted after a lease over several": [
        pushed(1, 2),
        popped(1, 1, 2, at=0),
        popped(2, 1, at=2.5),
        *acked(2, 1),
        popped(3, 2, at=2.6),
        *acked(3, 2),
    ],
    "an ack too late is refused": [
        pushed(1),
        popped(1, 1, at=0),
        popped(2, 1, at=2.5, attempts=2),
        *acked(2, 1),
        asked(1, 1),
        answered(1, 1, "lease_taken_over"),
    ],
    "an ack whose answer was lost": [pushed(1), popped(1, 1), asked(1, 1)],
    "a delivery that nobody saw": [
        pushed(1),
        popped(1, 1, at=0),
        popped(3, 1, at=5, attempts=3),
        *acked(3, 1),
    ],
    "two senders mixed in one partition": [
        pushed(1, 2, sender="a"),
        pushed(1, 2, sender="b"),
        popped(1, 1, numbers=[1], sender="a"),
        popped(2, 2, numbers=[1], sender="b"),
        popped(3, 3, numbers=[2], sender="b"),
        popped(4, 4, numbers=[2], sender="a"),
        *(event for lease in range(1, 5) for event in acked(lease, lease)),
    ],
}

BAD: dict[str, tuple[str, list[Event]]] = {
    "lost": ("nothing that was answered is lost", [pushed(1, 2), popped(1, 1), *acked(1, 1)]),
    "lost from the buffer": ("nothing that was answered is lost", [pushed(1, status="buffered")]),
    "delivered, and gone without an ack": (
        "nothing that was answered is lost",
        [pushed(1), popped(1, 1)],
    ),
    "stored twice": (
        "a push is stored once",
        [pushed(1), popped(1, 1, 2, numbers=[1, 1]), *acked(1, 1, 2)],
    ),
    "made up": ("nothing comes from nowhere", [popped(1, 1), *acked(1, 1)]),
    "changed": (
        "a message never changes",
        [
            pushed(1, 2),
            popped(1, 1),
            popped(2, 1, at=3, attempts=2, numbers=[2]),
            *acked(2, 1),
        ],
    ),
    "out of order in the partition": (
        "a sender's order is kept",
        [pushed(1, 2), popped(1, 1, 2, numbers=[2, 1]), *acked(1, 1, 2)],
    ),
    "out of order in the answer": (
        "messages come in order",
        [pushed(1, 2), popped(1, 2, 1), *acked(1, 1, 2)],
    ),
    "the second before the first": (
        "messages come in order",
        [pushed(1, 2), popped(1, 2), *acked(1, 2), popped(2, 1), *acked(2, 1)],
    ),
    "completed by two": (
        "no message is acked by two",
        [
            pushed(1),
            popped(1, 1),
            popped(2, 1, at=3, attempts=2),
            *acked(1, 1),
            *acked(2, 1),
        ],
    ),
    "delivered after it was completed": (
        "what was completed is not delivered again",
        [pushed(1), popped(1, 1), *acked(1, 1), popped(2, 1, at=3, attempts=2)],
    ),
    "delivered to two at once": (
        "a lease is its holder's until it ends",
        [pushed(1), popped(1, 1, at=0), popped(2, 1, at=1, attempts=2), *acked(2, 1)],
    ),
    "a delivery that was not counted": (
        "deliveries that count are counted",
        [pushed(1), popped(1, 1, at=0), popped(2, 1, at=3, attempts=1), *acked(2, 1)],
    ),
    "a failure among several that was not counted": (
        "deliveries that count are counted",
        [
            pushed(1, 2),
            popped(1, 1, 2, at=0),
            *acked(1, 1),
            asked(1, 2, status="failed"),
            answered(1, 2, status="failed"),
            popped(2, 2, at=3, attempts=1),
            *acked(2, 2),
        ],
    ),
    "fewer deliveries than before": (
        "deliveries that count are counted",
        [
            pushed(1, 2),
            popped(1, 1, 2, at=0, attempts=3),
            popped(2, 1, 2, at=3, attempts=2),
            *acked(2, 1, 2),
        ],
    ),
    "delivered more often than promised": (
        "attempts are bounded",
        [pushed(1), popped(1, 1, attempts=5), *acked(1, 1)],
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_passes(name: str) -> None:
    assert check(GOOD[name], RULES) == []


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_found_out(name: str) -> None:
    promise, events = BAD[name]
    assert promise in {violation.promise for violation in check(events, RULES)}


def long_history(spoil: Callable[[list[Event]], None] = lambda events: None) -> list[Event]:
    """A thousand messages of ten senders in ten partitions, consumed in tens."""
    events: list[Event] = []
    lease = 0
    for partition in range(1, 11):
        sender = f"s{partition}"
        for first in range(1, 101, 10):
            lease += 1
            seqs = range(first, first + 10)
            events.append(PushAnswered("q", sender, list(seqs), ["queued"] * 10, 0))
            events.append(popped(lease, *seqs, sender=sender, partition=partition, at=lease))
            places = [(partition, seq) for seq in seqs]
            events.append(AckAsked("q", "g", "c", lease, "completed", places, lease))
            events += [
                AckAnswered("q", "g", "c", lease, "completed", place, None, lease)
                for place in places
            ]
    spoil(events)
    return events


def test_a_single_message_lost_among_many_is_found() -> None:
    assert check(long_history(), RULES) == []

    def lose_one(events: list[Event]) -> None:
        for index, event in enumerate(events):
            if isinstance(event, Popped) and event.lease == 57:
                cut = event.messages[:4] + event.messages[5:]
                events[index] = Popped("q", "g", "c", 57, cut, event.asked_at, event.at)

    promises = {violation.promise for violation in check(long_history(lose_one), RULES)}
    assert promises == {"nothing that was answered is lost", "messages come in order"}


def test_items_of_work_queues_have_no_order_to_break() -> None:
    rules = Rules(groups={"q": ["g"]}, ordered=set(), lease_seconds=2, max_attempts=4)
    events = [pushed(1, 2), popped(1, 2, numbers=[1]), popped(2, 1, numbers=[2])]
    assert check([*events, *acked(1, 2), *acked(2, 1)], rules) == []


def test_every_delivery_of_an_item_counts() -> None:
    rules = Rules(groups={"q": ["g"]}, ordered=set(), lease_seconds=2, max_attempts=4)
    events = [pushed(1, 2), popped(1, 1, 2, at=0), popped(2, 1, 2, at=3), *acked(2, 1, 2)]
    promises = {violation.promise for violation in check(events, rules)}
    assert promises == {"deliveries that count are counted"}
