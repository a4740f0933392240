"""The history checker finds what is wrong: each test plants one fault in a history without any."""

import pytest

from tests.store.history import Answered, Asked, Event, History, Leased, Outcome, Sent

SECOND = 1_000_000


def sent(seq: int, *, is_duplicate: bool = False) -> Sent:
    return Sent(f"id-{seq}", 1, seq, is_duplicate)


def leased(number: int, seqs: list[int], at: int) -> Leased:
    """For ten seconds."""
    start = at * SECOND
    return Leased("g", number, 1, seqs, [1] * len(seqs), start, start, start + 10 * SECOND)


def acked(number: int, seq: int, at: int, error: str | None = None) -> list[Event]:
    about = ("g", number, 1, seq, "completed")
    return [Asked(*about, at=at * SECOND), Answered(*about, error=error)]


GOOD: list[Event] = [
    *(sent(seq) for seq in (1, 2, 3)),
    sent(2, is_duplicate=True),
    *(leased(1, [1, 2], at=0), *acked(1, 2, at=1)),
    *(leased(2, [1, 3], at=10), *acked(2, 1, at=11), *acked(2, 3, at=12)),
    *acked(1, 1, at=13, error="lease_taken_over"),
]
KEPT = [(1, seq, f"id-{seq}") for seq in (1, 2, 3)]
ALL_DONE = Outcome("g", 3, [])
STORED = {(1, 1), (1, 2), (1, 3)}


def check(events: list[Event], outcome: Outcome = ALL_DONE) -> None:
    history = History(events)
    history.check_pushes(KEPT)
    history.check_outcome(outcome, STORED)
    history.check_order(outcome)
    history.check_leases_of_partitions("g")
    history.check_leases_of_items()


def test_a_good_history_passes() -> None:
    check(GOOD)


@pytest.mark.parametrize(
    ("planted", "complaint"),
    [
        ([sent(4)], "was answered"),
        ([sent(1)], "both told that it is new"),
        ([Sent("id-1", 1, 2, True)], "was answered"),
        (acked(1, 2, at=2), "completed twice"),
        ([leased(3, [1], at=5)], "overlaps"),
        ([leased(3, [3, 2], at=30)], "not in order"),
    ],
)
def test_a_planted_event_is_found(planted: list[Event], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check([*GOOD, *planted])


def test_a_message_that_overtakes_another_is_found() -> None:
    early = [leased(1, [2], at=0), leased(2, [1, 3], at=10)]
    events = [e for e in GOOD if not isinstance(e, Leased)]
    with pytest.raises(AssertionError, match="came before"):
        check([*events, *early])


@pytest.mark.parametrize(
    ("outcome", "complaint"),
    [
        (Outcome("g", 2, []), "2 completed and 0 dead of 3"),
        (Outcome("g", 2, [(1, 3)]), "dead all the same"),
        (Outcome("g", 1, [(1, 3), (1, 3)]), "dead twice"),
    ],
)
def test_an_outcome_that_does_not_fit_is_found(outcome: Outcome, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check(GOOD, outcome)


def test_a_hole_in_the_seqs_and_a_lost_message_are_found() -> None:
    with pytest.raises(AssertionError, match="hole"):
        History(GOOD).check_pushes([KEPT[0], KEPT[2]])
    with pytest.raises(AssertionError, match="not there"):
        History(GOOD).check_outcome(ALL_DONE, {(1, 1), (1, 2)})


def test_a_message_that_nobody_acked_is_found() -> None:
    events = [e for e in GOOD if not (isinstance(e, Asked | Answered) and e.seq == 3)]
    with pytest.raises(AssertionError, match="nobody acked"):
        check(events)
