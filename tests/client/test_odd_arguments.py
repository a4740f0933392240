"""A client refuses odd arguments with `InvalidRequestError`, alike wherever its broker is."""

import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from monarq.client.async_client import AsyncClient
from monarq.client.client import Client
from monarq.errors import InvalidRequestError, TransactionFailedError
from monarq.model import Ack, Pop, Push, PushColumns, PushItem, Renew

Act = Callable[[AsyncClient, Any], Awaitable[object]]

HUGE = 10**400
LONE = "\ud800"
NO_TEXT: list[Any] = ["", "a\0b", LONE, "x" * 300, b"q", 5, True, [], object()]
NO_TIMES: list[Any] = ["now", b"q", True, math.nan, -math.inf, HUGE, [], object()]
NO_SECONDS: list[Any] = ["1", b"q", True, math.nan, math.inf, -1, HUGE, [], object()]
NO_COUNTS: list[Any] = [0, -1, HUGE, 1.5, math.nan, True, "1", None, object()]
NO_BOOLS: list[Any] = ["yes", 0, 1, None, [], object()]
NO_JSON: list[Any] = [LONE, {"a": LONE}, math.nan, [math.inf], object()]
NO_LISTS: list[Any] = ["q", b"q", 5, None, {"a": 1}, object()]
NO_KEYS: list[Any] = [5, b"x" * 32, [5], ["x" * 32], [b"x"], [b"x" * 16]]
BROKER = "http://127.0.0.1:1"
NO_REQUESTS: list[Any] = [None, 5, "q", {}, [], object()]


def item(**fields: Any) -> PushItem:
    return PushItem(**{"queue": "q", "payload": b"1"} | fields)


def task(mq: AsyncClient, **options: Any) -> Any:
    return mq.task(**{"name": "t"} | options)(print)


def _in_transaction(mq: AsyncClient, operate: Callable[[Any], None]) -> Awaitable[object]:
    tx = mq.transaction()
    operate(tx)
    return tx.__aexit__(None)


async def _enqueue(mq: AsyncClient, given: Any) -> None:
    await task(mq).enqueue_many(given)


#: Calls on queues, with the field that the error names.
CALLS: dict[str, tuple[Act, list[Any], str]] = {
    # pushes
    "queue": (lambda mq, odd: mq.queue(odd).push(1), [*NO_TEXT, None], "queue"),
    "partition": (lambda mq, odd: mq.queue("q").partition(odd).push(1), NO_TEXT, "partition"),
    "headers": (lambda mq, odd: mq.queue("q").push(1, headers=odd), NO_JSON, "headers"),
    "run at": (lambda mq, odd: mq.queue("q").push(1, run_at=odd), NO_TIMES, "no time"),
    "delay": (lambda mq, odd: mq.queue("q").push(1, delay=odd), NO_SECONDS, "delaySeconds"),
    "payloads": (lambda mq, odd: mq.queue("q").push_many(odd), [5, None], "payloads"),
    "push": (lambda mq, odd: mq.push(odd), NO_REQUESTS, "Push"),
    "items": (lambda mq, odd: mq.push(Push(odd)), [5, None, {"a": 1}, object()], "items"),
    "item": (lambda mq, odd: mq.push(Push([odd])), [*NO_REQUESTS, Pop(queue="q")], "PushItem"),
    "second item": (lambda mq, odd: mq.push(Push([item(), odd])), NO_REQUESTS, "PushItem"),
    "commands": (lambda mq, odd: mq.push(Push([item()], None, odd)), NO_BOOLS, "commands"),
    "raw payload": (lambda mq, odd: mq.push(Push([item(payload=odd)])), [b"q", b"{", 5], "payload"),
    "attempts": (lambda mq, odd: mq.push(Push([item(attempts=odd)])), [1, 5], "attempts"),
    "columns": (
        lambda mq, odd: mq.push(Push(PushColumns("q", "Default", [odd]))),
        [b"q", b"{"],
        "payload",
    ),
    "column of a queue": (
        lambda mq, odd: mq.push(Push(PushColumns(odd, "Default", [b"1"]))),
        [5, None],
        "queue",
    ),
    # imports
    "import": (lambda mq, odd: mq.admin.restore(odd), NO_REQUESTS, "Push"),
    "import of an item": (lambda mq, odd: mq.admin.restore(Push([odd])), NO_REQUESTS, "PushItem"),
    "import of a queue": (
        lambda mq, odd: mq.admin.restore(Push([item(queue=odd)])),
        [b"q", 5, LONE, object()],
        "queue",
    ),
    "import of a time": (
        lambda mq, odd: mq.admin.restore(Push([item(run_at=odd)])),
        ["now", math.nan, HUGE, -1, object()],
        "runAt",
    ),
    "import of a number": (
        lambda mq, odd: mq.admin.restore(Push([item(attempts=odd)])),
        [-1, math.nan, "1", True, HUGE],
        "attempts",
    ),
    "import for a producer": (
        lambda mq, odd: mq.admin.restore(Push([item()], odd)),
        [b"q", 5, math.nan, LONE],
        "producer",
    ),
    # pops
    "popped batch": (lambda mq, odd: mq.queue("q").pop(odd), NO_COUNTS, "batch"),
    "wait": (lambda mq, odd: mq.queue("q").pop(wait=odd), [*NO_SECONDS, None, 1e10], "wait"),
    "wait for labels": (lambda mq, odd: mq.pop(namespace="n", wait=odd), NO_SECONDS, "wait"),
    "lease": (lambda mq, odd: mq.queue("q").pop(lease=odd), NO_SECONDS, "leaseTime"),
    "auto ack": (lambda mq, odd: mq.queue("q").pop(auto_ack=odd), NO_BOOLS, "autoAck"),
    "start": (lambda mq, odd: mq.queue("q").pop(start=odd), [*NO_TIMES, None], "start|time"),
    # acks and leases
    "acks": (lambda mq, odd: mq.ack(odd), NO_LISTS, "acks"),
    "renewed lease": (lambda mq, odd: mq.renew(odd, 60), [*NO_TEXT, None], "leaseId"),
    "renewed for": (lambda mq, odd: mq.renew("1-abc", odd), [*NO_SECONDS, None], "seconds"),
    # queues and groups
    "kind": (lambda mq, odd: mq.queue("q").configure(kind=odd), ["odd", "", 5, []], "kind"),
    "option": (
        lambda mq, odd: mq.queue("q").configure(lease_time=odd),
        [LONE, "1", -1],
        "options|leaseTime",
    ),
    "after": (
        lambda mq, odd: mq.queue("q").groups(after=odd),
        ["", LONE, 5, [], "odd"],
        "page|after",
    ),
    "purged queue": (lambda mq, odd: mq.queue(odd).purge(), [None, ""], "queue"),
    "seek to": (lambda mq, odd: mq.queue("q").seek(to=odd), ["odd", "", 5, []], "to"),
    "seek to a time": (lambda mq, odd: mq.queue("q").seek(time=odd), NO_TIMES, "no time"),
    "subscribe": (
        lambda mq, odd: mq.queue("q").subscribe("g", odd),
        [*NO_TIMES, None],
        "start|time",
    ),
    "group of dead letters": (
        lambda mq, odd: mq.queue("q").dead_letters(group=odd),
        NO_TEXT,
        "consumerGroup",
    ),
    "error of dead letters": (
        lambda mq, odd: mq.admin.list_dead_letters(error=odd),
        ["a\nb", "a\0b", "x" * 201, 5],
        "error",
    ),
    "dead letters": (lambda mq, odd: mq.queue("q").redrive(ids=odd), [[], "1", [0], 5], "ids"),
    # records
    "record": (lambda mq, odd: mq.admin.put_record("k", "a", odd), [b"q", b"", "1", 5], "value"),
    # consumers, buffers and jobs
    "concurrency": (
        lambda mq, odd: mq.queue("q").consume(print, concurrency=odd),
        NO_COUNTS,
        "concurrency",
    ),
    "buffered count": (
        lambda mq, odd: mq.queue("q").buffer(max_count=odd).__aenter__(),
        [*NO_COUNTS, 10_001],
        "max_count",
    ),
    "buffered seconds": (
        lambda mq, odd: mq.queue("q").buffer(max_seconds=odd).__aenter__(),
        [*NO_SECONDS, None],
        "max_seconds",
    ),
    "job": (lambda mq, odd: mq.job(odd).item(), [*NO_TEXT, None], "^id must "),
    "outcome": (lambda mq, odd: mq.job("1-1").outcome(odd), ["1", [], HUGE], "timeout"),
    "task": (lambda mq, odd: mq.task(odd, name="t").enqueue(), ["f", 5], "function"),
    "name of a task": (lambda mq, odd: task(mq, name=odd).enqueue(), NO_TEXT, "name"),
    "calls": (_enqueue, [5, [5], ["ab"], {"a": 1}, object()], "calls"),
    "schedule": (lambda mq, odd: task(mq).schedule(at=odd).enqueue(), NO_TIMES, "no time"),
    "cron": (lambda mq, odd: mq.cron(odd)(print).enqueue(), ["odd", 5, None, b"q"], "schedule"),
    "zone": (
        lambda mq, odd: mq.cron("* * * * *", zone=odd)(print).enqueue(),
        ["odd", 5, None, b"q"],
        "zone",
    ),
    # transactions
    "queue of a transaction": (
        lambda mq, odd: _in_transaction(mq, lambda tx: tx.push(odd, 1)),
        NO_REQUESTS,
        "queue",
    ),
    "message of a transaction": (
        lambda mq, odd: _in_transaction(mq, lambda tx: tx.ack(odd)),
        NO_REQUESTS,
        "message",
    ),
}

#: Fields of one ack: the error stands in its place.
ACKS: list[dict[str, Any]] = [
    *({"status": odd} for odd in (None, "", "odd", 5, object())),
    *({"transaction_id": odd} for odd in (None, "", LONE, b"q", object())),
    *({"partition_id": odd} for odd in (None, 0, -1, HUGE, True, "1", object())),
    *({"group": odd} for odd in (None, "", LONE, b"q", object())),
    *({"error": odd} for odd in ("a\0b", LONE, b"q", 5, "x" * 70_000)),
    *({"retry_at": odd} for odd in (-1, HUGE, math.nan, "now", True)),
    *({"result": odd} for odd in (b"", b"q", "1", 5, object())),
    *({"commands": odd} for odd in NO_BOOLS),
]


@pytest.mark.parametrize("what", CALLS)
async def test_a_call_names_what_is_wrong(mq: AsyncClient, what: str) -> None:
    await mq.queue("q").configure()
    call, odd_values, field = CALLS[what]
    for odd in odd_values:
        try:
            with pytest.raises(InvalidRequestError, match=field):
                await call(mq, odd)
        except Exception as error:
            error.add_note(f"given {type(odd).__name__} {str(odd)[:50]!a}"[:100])
            raise
    assert len((await mq.admin.list_queues()).rows) <= 2  # of a task: its queue
    assert not await mq.queue("q").pop()


async def test_a_malformed_ack_has_its_error_in_its_place(mq: AsyncClient) -> None:
    for fields in ACKS:
        await mq.queue("q").push(1)
        message = (await mq.queue("q").pop())[0]
        good = message.to_ack()
        odd = Ack(**{"transaction_id": "t", "partition_id": 1, "lease_id": "1-abc"} | fields)
        first, second, third = await mq.ack([odd, good, 5])  # type: ignore[list-item]
        assert isinstance(first, InvalidRequestError), (fields, first)
        assert isinstance(third, InvalidRequestError)
        assert not isinstance(second, Exception), (fields, second)
    assert not await mq.queue("q").pop()


async def test_a_message_refuses_odd_answers_and_wants_a_good_one_still(mq: AsyncClient) -> None:
    await mq.queue("w").configure(kind="work")
    await mq.queue("w").push(1)
    [message] = batch = await mq.queue("w").pop()
    answers: list[Awaitable[object]] = [
        *(message.ack(odd) for odd in NO_JSON),
        *(answer(odd) for odd in (5, b"q", []) for answer in (message.fail, message.bury)),  # type: ignore[arg-type]
        *(batch.fail(odd) for odd in (5, b"q", [])),  # type: ignore[arg-type]
        *(message.fail("e", retry_at=odd) for odd in [*NO_TIMES, 2**63]),
        *(message.retry(at=odd) for odd in [*NO_TIMES, 2**63]),
        *(message.trace("e", odd) for odd in NO_JSON),
        *(message.trace("e", 1, names=odd) for odd in ("ab", 5, [LONE], ["n"] * 101)),  # type: ignore[arg-type]
        *(message.renew(odd) for odd in NO_SECONDS),
        *(batch.renew(odd) for odd in NO_SECONDS),
    ]
    for answer in answers:
        with pytest.raises(InvalidRequestError):
            await answer
    assert (await mq.admin.list_traces(name="n")).rows == []
    await message.ack()


async def test_an_odd_operation_fails_its_transaction(mq: AsyncClient) -> None:
    tx = mq.transaction()
    tx.push(mq.queue("q"), 1)
    tx.push(mq.queue("q"), 2, transaction_id=5)
    with pytest.raises(TransactionFailedError, match="transactionId") as refused:
        await tx.__aexit__(None)
    assert refused.value.operation == 1
    assert not await mq.queue("q").pop()


@pytest.mark.parametrize(
    "options",
    [
        *({"address": odd} for odd in (5, None, [], [5], {}, b"memory:")),
        *({"address": "memory:", "name": odd} for odd in NO_TEXT if odd != ""),
        *({"address": "memory:", "timeout": odd} for odd in [*NO_SECONDS, None, 0]),
        *({"address": BROKER, "token": odd} for odd in (5, LONE, "é", "a\nb", b"q")),
        *({"address": BROKER, "keys": odd} for odd in NO_KEYS),
        *({"address": f"http://{host}"} for host in (LONE, "é..x", "[", ":0")),
    ],
)
def test_a_client_cannot_be_made_with_odd_options(options: dict[str, Any]) -> None:
    for kind in (AsyncClient, Client):
        with pytest.raises(InvalidRequestError):
            kind(**options)


@pytest.mark.parametrize(
    "options",
    [
        *({"address": "memory:", "keys": odd} for odd in NO_KEYS),
        *({"address": f"sqlite:////tmp/{odd}"} for odd in ("a\0b", LONE)),
        *({"address": "postgresql://127.0.0.1:1/x", "schema": odd} for odd in ("a b", "", 5, None)),
    ],
)
async def test_a_store_cannot_be_opened_with_odd_options(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        await AsyncClient(**options).connect()


async def test_a_lease_is_renewed_by_a_request_of_its_own_type(mq: AsyncClient) -> None:
    for odd in (*NO_REQUESTS, Renew("1-abc", 1, "yes")):  # type: ignore[arg-type]
        with pytest.raises(InvalidRequestError):
            await mq.link.renew(odd)
