"""Anything malformed is refused with a typed error before it touches the store, field by field."""

from typing import Any

import pytest
from msgspec import structs

from monarq.errors import (
    InvalidRequestError,
    LeaseUnknownError,
    MonarqError,
    TransactionFailedError,
)
from monarq.model import (
    MAX_BATCH,
    MAX_PAYLOAD_BYTES,
    Ack,
    AckStatus,
    DeadLetterFilter,
    Pop,
    Push,
    PushItem,
    Renew,
    SeekTo,
    StartFrom,
    Transaction,
)
from monarq.operations.dead_letters import PurgeDeadLetters, Redrive
from monarq.operations.groups import Seek
from monarq.store import Store
from tests.store.calls import code_of, pop, push, push_many
from tests.store.scenarios import WORK, nothing_changes, stats

BAD_NAMES: list[Any] = [
    *("", "x" * 256, "a\x00b", "a\nb", "\x1b", "\x7f", "\x85", "\ud800"),
    *(5, b"q", []),
]
NAN, INFINITE = float("nan"), float("inf")


def item(**fields: Any) -> PushItem:
    return PushItem(**({"queue": "q", "payload": b"1"} | fields))


BAD_PUSHES: list[Push] = [
    Push([]),
    Push([item()] * (MAX_BATCH + 1)),
    *(Push([item(queue=name)]) for name in [*BAD_NAMES, None]),
    *(Push([item(partition=name)]) for name in [*BAD_NAMES, None]),
    *(Push([item(transaction_id=name)]) for name in BAD_NAMES),
    *(Push([item(trace_id=name)]) for name in BAD_NAMES),
    *(Push([item(namespace=name)]) for name in BAD_NAMES[1:]),
    *(Push([item(task=name)]) for name in BAD_NAMES[1:]),
    *(Push([item()], name) for name in BAD_NAMES),
    *(
        Push([item(payload=payload)])
        for payload in (b"", None, "text", {"a": 1}, bytearray(b"1"), b"\x01sealed?")
    ),
    Push([item(payload=b"x" * (MAX_PAYLOAD_BYTES + 1))]),
    *(
        Push([item(headers=headers)])
        for headers in (b"", b"1", b"[]", b"null", b"{", b"\xff", "text", b'{"a":1}x', {})
    ),
    Push([item(headers=b'{"a":"%s"}' % (b"x" * 70_000))]),
    *(Push([item(queue="w", priority=p)]) for p in (1001, -1001, 1.5, "1", True)),
    *(Push([item(queue="w", run_at=t)]) for t in (-1, 1.5, "now", 10**18, True)),
    *(Push([item(queue="w", delay_seconds=s)]) for s in (-0.1, NAN, INFINITE, "5", 10**12, True)),
    Push([item(queue="w", delay_seconds=1, run_at=1)]),
    *(Push([item(queue="w", max_attempts=a)]) for a in (0, -1, 1.5, "3", 10**7)),
    *(Push([item(queue="w", backoff_base=b)]) for b in (-1, 1001, NAN, "2")),
    Push([item(), item(payload=b"")]),
    Push([item(queue="w"), item(queue="")]),
]


async def test_every_malformed_push_is_refused_and_hurts_no_other(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await push(store, "q")
    async with nothing_changes(store):
        for number, request in enumerate(BAD_PUSHES):
            [outcome] = await store.push([request])
            assert isinstance(outcome, InvalidRequestError), (number, outcome)
            assert str(outcome)
    good = Push([item()])
    for request in BAD_PUSHES:
        outcomes = await store.push([good, request, good])
        assert [code_of(outcome) for outcome in outcomes] == [None, "invalid_request", None]
    assert (await stats(store, "q")).stored == 1 + 2 * len(BAD_PUSHES)


async def test_the_largest_batch_and_the_longest_names_are_not_refused(store: Store) -> None:
    await push_many(store, "x" * 255, MAX_BATCH, partition="y" * 255)
    popped = await pop(store, "x" * 255, MAX_BATCH)
    assert len(popped.messages) == MAX_BATCH


BAD_POPS: list[Pop] = [
    Pop(),
    *(Pop(queue=name) for name in BAD_NAMES),
    *(Pop(queue="q", partition=name) for name in BAD_NAMES),
    *(Pop(namespace=name) for name in BAD_NAMES),
    *(Pop(task=name) for name in BAD_NAMES),
    *(Pop(queue="q", group=name) for name in [*BAD_NAMES, None]),
    *(Pop(queue="q", consumer=name) for name in BAD_NAMES),
    Pop(queue="q", namespace="ns"),
    Pop(queue="q", task="t"),
    Pop(namespace="ns", partition="p"),
    *(Pop(queue="q", batch=n) for n in (0, -1, MAX_BATCH + 1, 1.5, "1", None, True)),  # type: ignore[arg-type]
    *(Pop(queue="q", partitions=n) for n in (0, -1, 1001, 1.5, "1", None)),  # type: ignore[arg-type]
    *(
        Pop(queue="q", lease_seconds=s)  # type: ignore[arg-type]
        for s in (0, -1, NAN, INFINITE, "5", 7 * 86_400 + 1, True)
    ),
    *(Pop(queue="q", group="fresh", start=s) for s in (-1, 1.5, "latest", "all ", None, 10**18)),  # type: ignore[arg-type]
]


async def test_every_malformed_pop_is_refused_leases_nothing_and_hurts_no_other(
    store: Store,
) -> None:
    await push_many(store, "q", 2, namespace="ns", task="t")
    async with nothing_changes(store):
        for number, request in enumerate(BAD_POPS):
            [outcome] = await store.pop([request])
            assert isinstance(outcome, InvalidRequestError), (number, outcome)
    *bad, good = await store.pop([*BAD_POPS, Pop(queue="q")])
    assert {code_of(outcome) for outcome in bad} == {"invalid_request"}
    assert not isinstance(good, MonarqError)
    assert [message.seq for message in good.messages] == [1]


def bad_acks(partition: int, transaction: str, lease: str) -> list[Ack]:
    def good(**fields: Any) -> Ack:
        values = {"partition_id": partition, "transaction_id": transaction, "lease_id": lease}
        return Ack(**(values | fields))

    return [
        Ack(),
        *(good(status=s) for s in ("done", "COMPLETED", "", None, 1)),
        *(good(transaction_id=name) for name in BAD_NAMES),
        good(transaction_id=None),
        good(partition_id=None),
        *(good(partition_id=n) for n in (0, -1, 1.5, "1", 2**63)),
        *(good(group=name) for name in [*BAD_NAMES, None]),
        *(good(lease_id=name) for name in ("", "x" * 256, "a\x00b", 5)),
        *(good(error=e) for e in ("a\x00b", "\ud800", 5, "x" * 65_537)),
        *(good(status=AckStatus.FAILED, retry_at=t) for t in (-1, 1.5, "later", 10**18)),
        *(good(status=AckStatus(s), retry_at=10**15) for s in ("completed", "release", "dead")),
        *(good(result=r) for r in (b"", "text", {}, b"x" * (MAX_PAYLOAD_BYTES + 1))),
    ]


async def test_every_malformed_ack_is_refused_and_hurts_no_other(store: Store) -> None:
    await push_many(store, "q", 2)
    popped = await pop(store, "q", 1)
    [message] = popped.messages
    assert popped.lease_id
    requests = bad_acks(message.partition_id, message.transaction_id, popped.lease_id)
    async with nothing_changes(store):
        for number, request in enumerate(requests):
            [outcome] = await store.ack([request])
            assert isinstance(outcome, InvalidRequestError), (number, outcome)
            [answer] = await store.transaction([Transaction([Push([item()]), request])])
            assert isinstance(answer, TransactionFailedError)
            assert (answer.operation, answer.cause.code) == (1, "invalid_request")
    *bad, good = await store.ack([*requests, Ack(lease_id=popped.lease_id)])
    assert {code_of(outcome) for outcome in bad} == {"invalid_request"}
    assert code_of(good) is None


BAD_RENEWALS: list[Renew] = [
    *(Renew("1-0123456789abcdef", s) for s in (0, -1, NAN, INFINITE, "5", None, 604_801)),  # type: ignore[arg-type]
    *(Renew(name, 5) for name in ("", "x" * 256, "a\x00b", None, 5)),  # type: ignore[arg-type]
]


async def test_every_malformed_renewal_is_refused(store: Store) -> None:
    async with nothing_changes(store):
        for number, request in enumerate(BAD_RENEWALS):
            [outcome] = await store.renew([request])
            assert isinstance(outcome, InvalidRequestError), (number, outcome)


async def test_a_lease_id_that_is_none_is_an_unknown_lease(store: Store) -> None:
    [outcome] = await store.renew([Renew("something else", 5)])
    assert isinstance(outcome, LeaseUnknownError)


#: Each with the operation that is at fault; None for a required lease.
BAD_TRANSACTIONS: list[tuple[Transaction, int | None]] = [
    (Transaction([Push([])]), 0),
    (Transaction([Push([item()]), Push([item(payload=b"")])]), 1),
    (Transaction([Push([item()]), Ack()]), 1),
    (Transaction([Ack(lease_id=""), Push([item()])]), 0),
    *((Transaction([Push([item()])], [name]), None) for name in ("", "a\x00b", 5)),  # type: ignore[list-item]
]


async def test_every_malformed_transaction_is_refused_whole_and_says_what_is_at_fault(
    store: Store,
) -> None:
    await push(store, "q")
    async with nothing_changes(store):
        for request, at_fault in BAD_TRANSACTIONS:
            [outcome] = await store.transaction([request])
            assert isinstance(outcome, TransactionFailedError)
            assert outcome.operation == at_fault
            assert isinstance(outcome.cause, InvalidRequestError)
        [outcome] = await store.transaction([Transaction([])])
        assert isinstance(outcome, InvalidRequestError)
    good = Transaction([Push([item()])])
    for request, _ in BAD_TRANSACTIONS:
        outcomes = await store.transaction([good, request, good])
        assert [isinstance(outcome, MonarqError) for outcome in outcomes] == [False, True, False]


BAD_FILTERS: list[DeadLetterFilter] = [
    *(DeadLetterFilter(queue=name) for name in BAD_NAMES[1:]),
    *(DeadLetterFilter(group=name) for name in BAD_NAMES[1:]),
    *(DeadLetterFilter(partition=name) for name in BAD_NAMES[1:]),
    *(DeadLetterFilter(failed_from=time) for time in (-1, 1.5, "now")),  # type: ignore[arg-type]
    *(DeadLetterFilter(failed_to=time) for time in (-1, 1.5, "now")),  # type: ignore[arg-type]
    *(DeadLetterFilter(ids=[number]) for number in (0, -1, 1.5, "one", 2**63)),  # type: ignore[list-item]
]


async def test_a_malformed_filter_purges_redrives_and_shows_nothing(store: Store) -> None:
    """Were it taken for an empty one, it would match everything."""
    await push_many(store, "q", 2)
    popped = await pop(store, "q", 2)
    await store.ack([Ack(status=AckStatus.DEAD, lease_id=popped.lease_id)])
    async with nothing_changes(store):
        for which in BAD_FILTERS:
            for call in (store.list_dead_letters, store.count_dead_letters):
                with pytest.raises(InvalidRequestError):
                    await call(which)
            for operation in (Redrive, PurgeDeadLetters):
                with pytest.raises(InvalidRequestError):
                    await store.call(operation(**structs.asdict(which)))


BAD_SEEKS: list[Seek] = [
    Seek(group="g", queue="q"),
    Seek(group="g", queue="q", to=SeekTo.START, seq=1),
    Seek(group="g", queue="q", time=1, seq=1),
    Seek(group="g", queue="q", to=SeekTo.END, time=1),
    *(Seek(group="g", queue="q", seq=s) for s in (0, -1, 1.5, "1")),  # type: ignore[arg-type]
    *(Seek(group="g", queue="q", time=t) for t in (-1, 1.5, "now")),  # type: ignore[arg-type]
    *(Seek(group=name, queue="q", seq=1) for name in BAD_NAMES),
    *(Seek(group="g", queue=name, seq=1) for name in BAD_NAMES),
    *(Seek(group="g", queue="q", partition=name, seq=1) for name in BAD_NAMES),
    Seek(group="g", queue="q", to="middle"),  # type: ignore[arg-type]
]


async def test_every_malformed_seek_is_refused(store: Store) -> None:
    await push_many(store, "q", 2)
    await store.subscribe("g", StartFrom.ALL, queue="q")
    async with nothing_changes(store):
        for request in BAD_SEEKS:
            with pytest.raises(InvalidRequestError):
                await store.call(request)


BAD_SUBSCRIPTIONS: list[tuple[str, Any, dict[str, Any]]] = [
    ("g", "latest", {"queue": "q"}),
    ("g", -1, {"queue": "q"}),
    ("g", StartFrom.ALL, {}),
    ("g", StartFrom.ALL, {"queue": "q", "namespace": "ns"}),
    ("", StartFrom.ALL, {"queue": "q"}),
    ("g", StartFrom.ALL, {"queue": ""}),
    ("g", StartFrom.ALL, {"namespace": "a\x00b"}),
]


async def test_every_malformed_subscription_is_refused(store: Store) -> None:
    await push(store, "q", namespace="ns")
    async with nothing_changes(store):
        for group, start, where in BAD_SUBSCRIPTIONS:
            with pytest.raises(InvalidRequestError):
                await store.subscribe(group, start, **where)


BAD_TRACE_FIELDS: list[dict[str, Any]] = [
    {"partition_id": 0},
    {"partition_id": "x"},
    {"transaction_id": ""},
    {"transaction_id": "a\x00b"},
    {"event_type": ""},
    {"data": b""},
    {"data": "text"},
    {"data": b"x" * ((1 << 20) + 1)},
    {"names": [""]},
    {"names": ["ok", "a\x00b"]},
]


async def test_every_malformed_trace_is_refused(store: Store) -> None:
    good: dict[str, Any] = {
        "partition_id": 1,
        "transaction_id": "t",
        "event_type": "e",
        "data": b"{}",
        "names": ["n"],
    }
    async with nothing_changes(store):
        for fields in BAD_TRACE_FIELDS:
            with pytest.raises(InvalidRequestError):
                await store.add_trace(**(good | fields))


async def test_a_limit_out_of_range_is_refused_by_every_paged_call(store: Store) -> None:
    await push(store, "q")
    await store.configure("w", kind=WORK)
    await store.subscribe("g", StartFrom.ALL, queue="q")
    for limit in (0, -1, 1.5, "10", None, True, 10**9):
        await check_limit_is_refused(store, limit)


async def check_limit_is_refused(store: Store, limit: Any) -> None:
    for call in (
        lambda: store.list_queues(limit=limit),
        lambda: store.list_groups(limit=limit),
        lambda: store.list_cursors("q", "g", limit=limit),
        lambda: store.list_dead_letters(DeadLetterFilter(), limit=limit),
        lambda: store.list_messages("q", limit=limit),
        lambda: store.list_items("w", limit=limit),
        lambda: store.list_items("w", limit=limit, order="next"),
        lambda: store.list_deliveries(limit=limit),
        lambda: store.list_attempts(limit=limit),
        lambda: store.list_traces(partition_id=1, transaction_id="t", limit=limit),
        lambda: store.list_trace_names(limit=limit),
    ):
        with pytest.raises(InvalidRequestError):
            await call()


async def test_a_made_up_place_to_go_on_from_is_a_page_or_a_typed_error_and_no_crash(
    store: Store,
) -> None:
    await push_many(store, "q", 3)
    await store.configure("w", kind=WORK)
    await push_many(store, "w", 3)
    await store.subscribe("g", StartFrom.ALL, queue="q")
    for after in ("", "nonsense", "1", "é", "x" * 5_000, "a\x00b", "9" * 40, "-1"):
        await check_after_is_harmless(store, after)


async def check_after_is_harmless(store: Store, after: str) -> None:
    for call in (
        lambda: store.list_queues(after=after),
        lambda: store.list_groups(after=after),
        lambda: store.list_cursors("q", "g", after=after),
        lambda: store.list_dead_letters(DeadLetterFilter(), after=after),
        lambda: store.list_messages("q", after=after),
        lambda: store.list_items("w", after=after),
        lambda: store.list_deliveries(after=after),
        lambda: store.list_attempts(after=after),
        lambda: store.list_traces(partition_id=1, transaction_id="t", after=after),
        lambda: store.list_trace_names(after=after),
        lambda: store.metrics(after=after),
    ):
        try:
            await call()
        except MonarqError as error:
            assert isinstance(error, InvalidRequestError)  # noqa: PT017
