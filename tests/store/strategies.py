"""Requests for random histories: few names, few values, so that things meet."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from monarq.model import (
    DEFAULT_GROUP,
    DEFAULT_PARTITION,
    POP_MAX_BYTES,
    AckStatus,
    Pop,
    Push,
    PushItem,
    QueueKind,
    SeekTo,
    StartFrom,
)

ORDERED = ("a", "b")
ORDERED_GRAVES = "graves"
WORK = ("w", "v")
WORK_GRAVES = "work-graves"
KINDS = {
    **dict.fromkeys((*ORDERED, ORDERED_GRAVES), QueueKind.ORDERED),
    **dict.fromkeys((*WORK, WORK_GRAVES), QueueKind.WORK),
}
QUEUES = tuple(KINDS)
GROUPS = (DEFAULT_GROUP, "g")
PARTITIONS = (DEFAULT_PARTITION, "p", "q")
LABEL = "label"

payloads = st.sampled_from([b"1", b'{"x":2}', b'"three"'])
#: What an answer has room for: mostly everything, now and then a few of these.
max_bytes = st.sampled_from([POP_MAX_BYTES] * 6 + [1, 7, 8, 15])
queues = st.sampled_from([*ORDERED, *WORK] * 3 + [ORDERED_GRAVES, WORK_GRAVES])
ordered_queues = st.sampled_from([*ORDERED] * 3 + [ORDERED_GRAVES])
groups = st.sampled_from(GROUPS)
statuses = st.sampled_from([AckStatus.COMPLETED] * 3 + [AckStatus.FAILED] * 3 + list(AckStatus))
lease_seconds = st.sampled_from([None, None, 1.0, 5.0, 30.0])
errors = st.sampled_from([None, "no", "never"])
#: Seconds that the clock moves; sometimes, as clocks do, a little back.
steps = st.sampled_from(
    [0.001, 0.5, 1.0, 1.0, 1.0, 2.0, 2.0, 4.0, 5.0, 9.0, 30.0, 100.0, -0.5, -2.0]
)

_ordered_options: dict[str, list[Any]] = {
    "leaseTime": [5.0, 10.0],
    "retryLimit": [0, 1, 2],
    "retryDelay": [0, 1000, 3000],
    "delayedProcessing": [0, 0, 2.0],
    "windowBuffer": [0, 0, 2.0],
    "maxWaitTimeSeconds": [0, 0, 10.0],
    "maxSize": [0, 4, 8],
    "deadLetterQueue": [True, True, False],
    "dlqAfterMaxRetries": [True, True, False],
    "priority": [0, 1, -1],
    "retentionSeconds": [0, 60.0],
    "completedRetentionSeconds": [0, 5.0, 20.0],
    "retentionEnabled": [True, True, False],
    "retainUntilArchived": [False, False, True],
}
_work_options: dict[str, list[Any]] = {
    "leaseTime": [5.0, 10.0],
    "maxAttempts": [1, 2, 3],
    "backoffBase": [0, 1.0, 2.0, 3.0],
    "backoffCap": [3.0, 3600.0],
    "expireTimeout": [0, 0, 20.0],
    "defaultPriority": [0, 5],
    "maxSize": [0, 5],
    "deadLetterQueue": [True, True, False],
    "completedRetentionSeconds": [0, 5.0, 20.0],
}


def options_of(queue: str) -> st.SearchStrategy[dict[str, Any]]:
    """A few changes to a queue's options, some of which are refused."""
    is_work = KINDS[queue] is QueueKind.WORK
    choices = dict(_work_options if is_work else _ordered_options)
    graves = WORK_GRAVES if is_work else ORDERED_GRAVES
    choices["deadQueue"] = ["", graves, graves, graves, graves, "nowhere", *QUEUES]
    strategies = {name: st.sampled_from(values) for name, values in choices.items()}
    return st.lists(st.sampled_from(sorted(strategies)), max_size=6, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: strategies[name] for name in names})
    )


def starts(now: int) -> st.SearchStrategy[StartFrom | int]:
    moments = [now, now - 1_000_000, now - 3_000_000]
    often = [StartFrom.ALL] * 12 + [StartFrom.NEW] * 3 + moments
    return st.sampled_from([*often, now + 1_000_000])


def run_times(now: int) -> st.SearchStrategy[int | None]:
    return st.sampled_from([None, None, now - 1, now, now + 1_000_000, now + 4_000_000])


@st.composite
def push_items(
    draw: st.DrawFn, now: int, kinds: Mapping[str, QueueKind], own_ids: list[str]
) -> PushItem:
    """For one of the queues in `kinds`; seldom one that does not fit it."""
    queue = draw(st.sampled_from(sorted(kinds)))
    transaction_id = draw(st.sampled_from([None, None, None, "x", "y", "z", *own_ids]))
    fields: dict[str, Any] = {}
    misfit = draw(st.integers(0, 60)) == 60
    if (kinds[queue] is QueueKind.WORK) != misfit:
        fields = draw(
            st.fixed_dictionaries(
                {
                    "priority": st.sampled_from([None, None, 0, 3, 4, 5, 9]),
                    "run_at": run_times(now),
                    "max_attempts": st.sampled_from([None, None, 1, 2]),
                    "backoff_base": st.sampled_from([None, None, 0, 1.5]),
                }
            )
        )
        if fields["run_at"] is None:
            fields["delay_seconds"] = draw(st.sampled_from([None, None, None, 0.0, 2.0]))
    else:
        fields["partition"] = draw(st.sampled_from(PARTITIONS))
    return PushItem(
        queue,
        draw(payloads),
        transaction_id=transaction_id,
        trace_id=draw(st.sampled_from([None, None, None, "t"])),
        namespace=LABEL if queue in ORDERED else None,
        headers=draw(st.sampled_from([None, None, b'{"h":"1"}'])),
        **fields,
    )


def pushes(
    now: int, kinds: Mapping[str, QueueKind], own_ids: list[str], max_items: int = 5
) -> st.SearchStrategy[Push]:
    items = st.lists(push_items(now, kinds, own_ids), min_size=1, max_size=max_items)
    return st.builds(Push, items, st.sampled_from([None, None, "producer"]))


@st.composite
def pops(draw: st.DrawFn, now: int, names: Sequence[str]) -> Pop:
    """From one of these queues, or from all with the label."""
    where: dict[str, Any]
    if draw(st.integers(0, 5)) == 5:
        # One lease time for all queues that it may find.
        where = {"namespace": LABEL, "lease_seconds": draw(st.sampled_from([1.0, 5.0, 30.0]))}
    else:
        where = {"queue": draw(st.sampled_from(names)), "lease_seconds": draw(lease_seconds)}
        if KINDS[where["queue"]] is QueueKind.ORDERED and draw(st.integers(0, 5)) == 5:
            where["partition"] = draw(st.sampled_from(PARTITIONS))
    is_work = KINDS.get(where.get("queue", "")) is QueueKind.WORK
    is_group_refused = draw(st.integers(0, 30)) == 30
    return Pop(
        **where,
        group=DEFAULT_GROUP if is_work and not is_group_refused else draw(groups),
        batch=draw(st.sampled_from([1, 2, 3, 10])),
        partitions=draw(st.sampled_from([1, 1, 2, 3])),
        auto_ack=draw(st.sampled_from([False] * 9 + [True])),
        start=draw(starts(now)),
        consumer=draw(st.sampled_from([None, "c1", "c2"])),
    )


@st.composite
def pop_calls(draw: st.DrawFn, now: int, names: Sequence[str]) -> list[Pop]:
    """Requests for the same thing; sometimes with an ordered and a work queue in one call."""
    first, second = draw(pops(now, names)), draw(pops(now, names))
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 10]), max_size=2))
    requests = [first, *(replace(first, batch=size) for size in sizes)]
    kinds = {KINDS.get(request.queue or "", QueueKind.ORDERED) for request in (first, second)}
    if len(kinds) == 2 and draw(st.booleans()):
        requests.insert(draw(st.integers(0, len(requests))), second)
    return requests


def seek_targets(now: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.fixed_dictionaries({"to": st.sampled_from(SeekTo)}),
        st.fixed_dictionaries({"time": st.sampled_from([0, now, now - 2_000_000, now + 1])}),
        st.fixed_dictionaries({"seq": st.sampled_from([1, 2, 3, 5, 99])}),
    )
