"""Every call of the contract answers odd arguments with Monarq's errors, and all stores alike."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from monarq.clock import ManualClock
from monarq.errors import MonarqError
from monarq.model import (
    Ack,
    DeadLetterFilter,
    ItemState,
    Pop,
    Popped,
    Push,
    PushItem,
    Renew,
    SeekTo,
    StartFrom,
    Transaction,
)
from monarq.operations.groups import Seek
from monarq.store import Store, open_store, paging
from monarq.store.validation.calls import CHECKS
from tests.store.calls import push, push_many
from tests.store.conftest import KEY, STORE_NAMES, new_place
from tests.store.scenarios import WORK
from tests.store.test_validation import (
    BAD_POPS,
    BAD_PUSHES,
    BAD_RENEWALS,
    BAD_TRANSACTIONS,
    bad_acks,
)

NAN, INFINITE, HUGE = float("nan"), float("inf"), 2**80
BAD_NAMES: list[Any] = ["", "x" * 256, "a\0b", "a\nb", "\ud800", b"q", 5, True, 1.5, [], {}]
BAD_LABELS = BAD_NAMES[1:]
BAD_TEXTS: list[Any] = ["a\0b", "\udfff", "x" * 70_000, b"q", 5, []]
BAD_NUMBERS: list[Any] = [-1, HUGE, -HUGE, 2**63, 1.5, NAN, INFINITE, "1", True, [], None]
BAD_TIMES: list[Any] = [-1, HUGE, 1.5, NAN, "now", True, datetime(2026, 1, 1)]  # noqa: DTZ001
BAD_COUNTS: list[Any] = [0, *BAD_NUMBERS]
BAD_BOOLS: list[Any] = ["yes", 0, 2, None]
BAD_CHOICES: list[Any] = ["", "odd", "a\0b", 5, [], True]
BAD_ITEM_IDS: list[Any] = ["", "1", "1-0", "a\0b", "\ud800", f"1-{HUGE}", "9" * 300, 5, None, True]
BAD_REQUESTS: list[Any] = [None, 5, "q", {}, Ack()]
#: Kinds of page tokens.
LISTS = (
    *("attempts", "cursors", "deliveries", "dead letters", "group flows", "groups", "items"),
    *("messages", "metrics", "metrics before", "newest items", "partitions", "queue flows"),
    *("queues", "records", "standings", "traces", "trace names"),
)
BAD_TOKENS: list[Any] = [
    *("", "nonsense", "a\0b", "\ud800", "x" * 5_000, 5, b"q", True, []),
    paging.token("odd", 1),
    *(paging.token(kind, key) for kind in LISTS for key in (2**63, -(2**63), "\0", ("\0", 1))),
]
BAD_MARKS: list[Any] = ["", "x" * 65, "a\0", "\ud800", "é", 5, []]
BAD_ITEMS = [PushItem(name, b"1") for name in BAD_NAMES]
BAD_LISTS: list[Any] = ["q", b"q", 5, None, {"q": 1}]
#: Arguments of the same name that are checked alike in every call that has them.
NAMES = {
    **dict.fromkeys(
        ("queue", "group", "partition", "transaction_id", "kind", "key", "to"), BAD_NAMES
    ),
    **dict.fromkeys(("namespace", "task"), BAD_LABELS),
    **dict.fromkeys(("table", "name"), BAD_NAMES),
    **dict.fromkeys(("error",), BAD_TEXTS),
    **dict.fromkeys(("since", "until", "at", "created_from", "created_to"), BAD_TIMES),
    **dict.fromkeys(("limit", "samples", "max_bytes"), BAD_COUNTS),
    **dict.fromkeys(("partition_id", "seq", "first_seq", "attempt"), BAD_COUNTS),
    **dict.fromkeys(("last_seq", "start", "offset"), BAD_NUMBERS),
    **dict.fromkeys(
        ("paused", "forget_start", "only_new", "scheduled_only", "keep_leased", "commands"),
        BAD_BOOLS,
    ),
    "item_id": BAD_ITEM_IDS,
    "state": BAD_CHOICES,
    "after": BAD_TOKENS,
    "which": [
        *BAD_REQUESTS,
        *(DeadLetterFilter(queue=name) for name in BAD_LABELS),
        *(DeadLetterFilter(ids=ids) for ids in ([HUGE], [0], [True], 5, "ids")),  # type: ignore[arg-type]
    ],
    "request": [
        *BAD_REQUESTS,
        *(Seek(group=name, queue="q", seq=1) for name in BAD_NAMES),
        *(Seek(group="g", queue="q", seq=number) for number in BAD_NUMBERS),
        *(Seek(group="g", queue="q", time=time) for time in BAD_TIMES),
    ],
    "queues": [*BAD_LISTS[:-2], *([name] for name in BAD_NAMES)],
    "columns": [*BAD_LISTS, [], ["odd"], ["a\0b"], [5], [[]], ["payload", "payload"]],
    "spans": [*BAD_LISTS, [5], [(1, 2)], *([(number, 1, 1)] for number in BAD_NUMBERS)],
    "positions": [5, None, "q", [1], {HUGE: 1}, {1: HUGE}, {"1": 1}, {True: 1}, {1: True}],
    "data": ["text", None, 5, {}],
    "keep_seconds": [-1, NAN, INFINITE, HUGE, "1", True],
}
#: Where the same name means something else.
OF_ONE_CALL: dict[tuple[str, str], list[Any]] = {
    ("subscribe", "start"): ["latest", -1, HUGE, True, NAN, None],
    ("set_setting", "value"): BAD_TEXTS,
    ("export_rows", "until"): ["", "1", "a\0b", "9" * 40, 5, -1],
    ("export_rows", "after"): ["", "1", "a\0b", "9" * 40, 5, -1],
}

#: Of each call, arguments that all stores accept.
GOOD: dict[str, dict[str, Any]] = {
    "lifecycle": {"limit": 10},
    "rekey_step": {"limit": 10, "after": None},
    "queue_settings": {"name": "q"},
    "describe_queues": {"queues": ["q"]},
    "subscribe": {"group": "h", "start": StartFrom.ALL, "queue": "q"},
    "list_dead_letters": {"which": DeadLetterFilter(), "limit": 1, "after": None},
    "count_dead_letters": {"which": DeadLetterFilter()},
    "list_deliveries": {"queue": "q", "limit": 1, "after": None},
    "list_attempts": {"queue": "w", "limit": 1, "after": None},
    "metrics": {"queue": "q", "since": 0, "until": 1, "limit": 1, "after": None},
    "get_partition": {"partition_id": 1},
    "metrics_before": {"at": 1, "queue": "q", "limit": 1, "after": None},
    "set_setting": {"key": "k", "value": "v"},
    "export_plan": {"queue": "q", "created_from": 0, "created_to": 1},
    "export_read": {"partition_id": 1, "first_seq": 1, "last_seq": 1, "max_bytes": 1},
    "kept_spans": {"spans": [(1, 1, 1)]},
    "export_messages": {"spans": [(1, 1, 1)], "columns": ["payload"], "max_bytes": 1},
    "export_rows": {
        "table": "deliveries",
        "columns": ["id"],
        "after": None,
        "until": None,
        "queues": ["q"],
        "limit": 1,
    },
    "log_end": {"table": "deliveries"},
    "set_archived": {"queue": "q", "positions": {1: 1}},
    "archived": {"queue": "q"},
    "queue_flows": {"queue": "q", "namespace": "n", "task": "t", "limit": 1, "after": None},
    "group_flows": {"queue": "q", "limit": 1, "after": None},
    "list_standings": {"queue": "q", "group": "g", "limit": 1, "after": None},
    "standings_of": {"partition_id": 1},
    "list_failing": {"queue": "q", "group": "g", "limit": 1},
    "deliveries_of": {"partition_id": 1, "seq": 1, "limit": 1},
    "preview_seek": {"request": Seek(group="g", queue="q", to=SeekTo.START)},
    "skip": {"queue": "q", "group": "g", "partition": "Default", "seq": 1, "error": "e"},
    "dead_letter_errors": {"which": DeadLetterFilter(), "limit": 1},
    "latencies": {"since": 0, "until": 1, "queue": "q", "samples": 1},
    "find_messages": {"queue": "q", "transaction_id": "t"},
    "newest_items": {"queue": "w", "state": ItemState.READY, "limit": 1, "after": None},
}
#: Calls that answer each of their requests.
HOT = {"push", "pop", "ack", "ack_and_pop", "renew", "transaction"}
WITHOUT_ARGUMENTS = {"changed", "close", "get_settings", "health_figures", "ping"}
#: Well-formed arguments that name nothing that is there, or that two rules meet in.
UNKNOWN: dict[str, list[Any]] = {
    "name": ["missing"],
    "queue": ["missing", "w", "q"],
    "group": ["missing"],
    "partition": ["missing"],
    "transaction_id": ["missing", "x" * 255],
    "namespace": ["missing", ""],
    "task": ["missing", ""],
    "partition_id": [2**62, 999],
    "item_id": ["999-1", f"{10**17}-{10**17}", "1-1"],
    "first_seq": [2**62],
    "last_seq": [2**62, 0],
    "seq": [2**62, 2],
    "to": ["missing", "w"],
    "limit": [1000],
    "offset": [0, 2**62],
    "key": ["missing"],
    "positions": [{999: 1}, {1: 2**62}, {}],
    "spans": [[(999, 1, 2**62)], []],
    "queues": [["missing"], []],
    "which": [
        *(DeadLetterFilter(queue=name) for name in ("missing", "w", "")),
        *(DeadLetterFilter(group=name, partition=name) for name in ("missing", "")),
        *(DeadLetterFilter(ids=ids) for ids in ([], [999], [2**62])),
        DeadLetterFilter(failed_from=2, failed_to=1, error="e"),
    ],
    "request": [
        *(Seek(group="g", queue=name, to=SeekTo.END) for name in ("missing", "w")),
        Seek(group="missing", queue="q", to=SeekTo.END),
        Seek(group="missing", queue="q", partition="missing", seq=1),
        Seek(group="g", queue="q", partition="missing", seq=1),
        *(Seek(group="g", queue="q", seq=number) for number in (1, 2**62)),
        *(Seek(group="g", queue="q", time=time) for time in (0, 253_402_300_799_000_000)),
    ],
    "start": [253_402_300_799_000_000],
    "after": [paging.token(kind, key) for kind in LISTS for key in (1, "a", ("a", "b"), (1, "a"))],
}


def odd_values(call: str, argument: str) -> list[Any]:
    if (call, argument) in OF_ONE_CALL:
        return OF_ONE_CALL[call, argument]
    return NAMES[argument]


async def _set_the_scene(store: Store) -> None:
    """A queue with one message and a group, a work queue with one item, and a record."""
    await push(store, "q", transaction_id="t")
    await store.configure("w", kind=WORK)
    await push(store, "w", transaction_id="u")
    await store.subscribe("g", StartFrom.ALL, queue="q")
    await store.put_record("k", "r", b"1")


@pytest.fixture
async def stores(
    tmp_path: Path, postgres_servers: Mapping[str, str], clock: ManualClock
) -> AsyncIterator[dict[str, Store]]:
    """One store of each kind, all with the same scene."""
    async with contextlib.AsyncExitStack() as stack:
        made = {}
        for name in STORE_NAMES:
            place = await stack.enter_async_context(new_place(name, tmp_path, postgres_servers))
            store = await open_store(place.address, clock=clock, keys=[KEY], schema=place.schema)
            made[name] = await stack.enter_async_context(store)
            await _set_the_scene(store)
        yield made


async def outcome(store: Store, call: str, arguments: dict[str, Any]) -> tuple[str, str]:
    """The code and text of the error; a driver's error and Python's fail the test."""
    try:
        await getattr(store, call)(**arguments)
    except MonarqError as error:
        return error.code, str(error)
    return "", ""


async def outcomes(
    stores: dict[str, Store], call: str, arguments: dict[str, Any]
) -> tuple[str, str]:
    """The one outcome that all stores have."""
    found = {name: await outcome(store, call, arguments) for name, store in stores.items()}
    assert len(set(found.values())) == 1, (arguments, found)
    return found["memory"]


def test_every_call_of_the_contract_is_tried() -> None:
    # `call` has validated their requests.
    calls = Store.__abstractmethods__ - {"carry_out", "pass_messages"}
    assert calls == GOOD.keys() | HOT | WITHOUT_ARGUMENTS
    assert CHECKS.keys() == GOOD.keys()
    for call, good in GOOD.items():
        parameters = signature(getattr(Store, call)).parameters.keys() - {"self"}
        untried = parameters - good.keys()
        assert untried <= {"namespace", "task", "name"}, (call, untried)


@pytest.mark.parametrize("call", GOOD)
async def test_an_odd_argument_is_refused_by_all_stores_in_the_same_words(
    stores: dict[str, Store], call: str
) -> None:
    for argument in GOOD[call]:
        values = BAD_NAMES if call in _BY_NAME and argument == "name" else None
        for value in values or odd_values(call, argument):
            code, text = await outcomes(stores, call, GOOD[call] | {argument: value})
            if value is None and _may_be_none(call, argument):
                continue
            assert code == "invalid_request", (argument, value, text)
            assert text
            assert "\0" not in text


@pytest.mark.parametrize("call", GOOD)
async def test_a_name_or_number_that_is_not_there_is_answered_alike_by_all_stores(
    stores: dict[str, Store], call: str
) -> None:
    for argument in GOOD[call]:
        for value in UNKNOWN.get(argument, ()):
            code, _ = await outcomes(stores, call, GOOD[call] | {argument: value})
            assert code in ("", "invalid_request", "not_found", "conflict"), (argument, value)
    await outcomes(stores, call, GOOD[call])


def hot_requests() -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    message = (1, "t", "1-0123456789abcdef")
    return [
        *(("push", ([request],), {}) for request in BAD_PUSHES),
        *(("push", ([Push([PushItem("q", b"1")])],), {"mark": mark}) for mark in BAD_MARKS),
        *(("push", ([Push([PushItem("q", b"1")])],), {"after": mark}) for mark in BAD_MARKS),
        *(("pop", ([request],), {}) for request in BAD_POPS),
        *(("pop", ([Pop(queue="q")],), {"max_bytes": number}) for number in (0, *BAD_NUMBERS)),
        *(("ack", ([request],), {}) for request in bad_acks(*message)),
        *(("ack_and_pop", ([request], []), {}) for request in bad_acks(*message)),
        *(("ack_and_pop", ([], [request]), {}) for request in BAD_POPS),
        *(("renew", ([request],), {}) for request in BAD_RENEWALS),
        *(("transaction", ([request],), {}) for request, _ in BAD_TRANSACTIONS),
        *(("transaction", ([Transaction([Push([request])])],), {}) for request in BAD_ITEMS),
    ]


async def test_the_calls_of_the_hot_path_refuse_the_same_in_the_same_words(
    stores: dict[str, Store],
) -> None:
    for call, requests, options in hot_requests():
        found = {}
        for name, store in stores.items():
            try:
                answer = await getattr(store, call)(*requests, **options)
            except MonarqError as error:
                found[name] = [(error.code, str(error))]
            else:
                flat = [*answer[0], *answer[1]] if isinstance(answer, tuple) else answer
                found[name] = [(one.code, str(one)) for one in flat]
        assert len(set(map(str, found.values()))) == 1, (call, requests, options, found)
        [(code, text)] = found["memory"]
        assert code in ("invalid_request", "transaction_failed"), (call, requests, options)
        assert text


async def test_answers_under_wrong_leases_are_refused_in_the_same_words(
    stores: dict[str, Store], clock: ManualClock
) -> None:
    told = {name: await _wrong_answers(store, clock) for name, store in stores.items()}
    assert len(set(map(str, told.values()))) == 1, told
    assert [code for code, _ in told["memory"]] == [
        *("lease_unknown", "lease_unknown", "lease_taken_over", "lease_foreign", "not_found"),
        *("lease_expired", "lease_foreign", "already_acked", "already_acked", "lease_taken_over"),
        *("lease_expired", "lease_expired"),
    ]


async def _wrong_answers(store: Store, clock: ManualClock) -> list[tuple[str, str]]:
    """Answers to a message and an item that are refused, and why."""
    [message] = (await store.list_messages("q")).rows
    [item] = (await store.list_items("w")).rows
    [of_message, of_item] = await store.pop(
        [Pop(queue="q", group="g", lease_seconds=60), Pop(queue="w", lease_seconds=60)]
    )
    assert isinstance(of_message, Popped)
    assert isinstance(of_item, Popped)
    wrong = "1-0123456789abcdef"
    first = Ack(transaction_id="t", partition_id=message.partition_id, group="g")
    second = Ack(transaction_id="u", partition_id=item.partition_id)
    found: list[Any] = [
        *await store.ack([Ack(lease_id=wrong)]),
        *await store.renew([Renew(wrong, 5)]),
        *await store.ack([structs.replace(first, lease_id=wrong)]),
        *await store.ack([structs.replace(first, lease_id=of_item.lease_id)]),
        *await store.ack([structs.replace(first, transaction_id="none")]),
        *await store.ack([structs.replace(first, group="other")]),
        *await store.ack([structs.replace(second, lease_id=of_message.lease_id)]),
    ]
    await store.ack([structs.replace(first, lease_id=of_message.lease_id)])
    found += await store.ack([structs.replace(first, lease_id=of_message.lease_id)])
    await store.ack([structs.replace(second, lease_id=of_item.lease_id)])
    found += await store.ack([structs.replace(second, lease_id=of_item.lease_id)])
    await push(store, "q", transaction_id="later")
    [again] = await store.pop([Pop(queue="q", group="g", lease_seconds=60)])
    assert isinstance(again, Popped)
    later = structs.replace(first, transaction_id="later")
    found += await store.ack([structs.replace(later, lease_id=of_message.lease_id)])
    clock.advance(61)
    found += await store.ack([structs.replace(later, lease_id=again.lease_id)])
    found += await store.renew([Renew(again.lease_id or "", 5)])
    return [(one.code, str(one)) for one in found]


async def test_what_a_store_does_not_allow_is_refused_in_the_same_words(
    stores: dict[str, Store],
) -> None:
    told = {name: await _not_allowed(store) for name, store in stores.items()}
    assert len(set(map(str, told.values()))) == 1, told
    assert all(code for code, _ in told["memory"])


async def _not_allowed(store: Store) -> list[tuple[str, str]]:
    sealed = {"encryptionEnabled": True}
    await store.configure("sealed", options=sealed)
    await store.configure("plain")
    await store.configure("user", options={"deadQueue": "plain"})
    await store.configure("full", options={"maxSize": 5})
    await push_many(store, "full", 4)
    [message] = (await store.list_messages("q")).rows
    [item] = (await store.list_items("w")).rows
    await store.pop([Pop(queue="q", group="g"), Pop(queue="w")])
    changes: list[tuple[str, dict[str, Any]]] = [
        ("new", {"deadQueue": "missing"}),
        ("plain", {**sealed, "deadQueue": "missing"}),
        ("new", {"deadQueue": "new"}),
        ("new", {"deadQueue": "w"}),
        ("new", {"deadQueue": "user"}),
        ("new", {"deadQueue": "sealed"}),
        ("plain", sealed),
        ("plain", {"deadQueue": "q"}),
    ]
    calls = [
        ("delete_message", (message.partition_id, message.transaction_id)),
        ("delete_message", (item.partition_id, item.transaction_id)),
        ("delete_queue", ("plain",)),
    ]
    found = [await outcome(store, "configure", {"queue": q, "options": o}) for q, o in changes]
    for call, arguments in calls:
        try:
            await getattr(store, call)(*arguments)
        except MonarqError as error:
            found.append((error.code, str(error)))
    for one in (
        *await store.push([Push([PushItem("full", b"1")] * 3)]),
        *await store.pop([Pop(queue="w", group="g")]),
    ):
        assert isinstance(one, MonarqError)
        found.append((one.code, str(one)))
    assert len(found) == len(changes) + len(calls) + 2, found
    return found


_BY_NAME = {"queue_settings"}


def _may_be_none(call: str, argument: str) -> bool:
    parameter: Parameter = signature(getattr(Store, call)).parameters[argument]
    return "None" in str(parameter.annotation)
