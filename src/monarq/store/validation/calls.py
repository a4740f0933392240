"""The arguments of the contract's calls beside the hot path, checked where a call enters.

`CHECKS` says for each call what each argument must be. The class decorator `checks_arguments`
makes a store refuse the rest with `InvalidRequestError`, so that all stores refuse the same things
in the same words, and no driver sees a value that it cannot take. The calls of the hot path check
their requests themselves, one by one (see `requests` and `pushes`). Whether a page token is one of
the list that is asked for is checked by `paging`, when the list is read.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from enum import StrEnum
from inspect import signature
from typing import Any, TypeAlias, TypeVar

from monarq.errors import InvalidRequestError
from monarq.model import (
    DeadLetterFilter,
    ItemState,
)
from monarq.operations.groups import Seek
from monarq.operations.validation import validated
from monarq.store import paging, positions
from monarq.store.contract.watching import MOST_FLOWS
from monarq.store.exported import MOST_SPANS
from monarq.store.validation.fields import (
    check_bool,
    check_int,
    check_kind,
    check_label,
    check_limit,
    check_name,
    check_text,
    check_time,
)
from monarq.store.validation.requests import (
    check_dead_letter_filter,
    check_start,
)

T = TypeVar("T", bound=type)
Check: TypeAlias = Callable[[Any], object]
_MOST = 2**62


# --- kinds of arguments ----------------------------------------------------------------


def _name(field: str) -> Check:
    return lambda value: check_name(value, field)


def _label(field: str) -> Check:
    return lambda value: check_label(value, field)


def _text(field: str) -> Check:
    return lambda value: check_text(value, field)


def _int(field: str, low: int, high: int) -> Check:
    return lambda value: check_int(value, field, low, high)


def _time(field: str) -> Check:
    return lambda value: check_time(value, field)


def _bool(field: str) -> Check:
    return lambda value: check_bool(value, field)


def _limit(most: int = 1000) -> Check:
    return lambda value: check_limit(value, most)


def _choice(field: str, choices: type[StrEnum]) -> Check:
    def check(value: object) -> None:
        if not isinstance(value, str) or value not in list(choices):
            raise InvalidRequestError(f"{field} must be one of {', '.join(choices)}")

    return check


def _request(kind: type, check: Check) -> Check:
    """A request given as a struct of this type."""

    def checked(value: object) -> None:
        check_kind(value, kind)
        check(value)

    return checked


def _optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _many(field: str, most: int, check: Check) -> Check:
    def checked(values: object) -> None:
        _check_collection(values, field)
        assert isinstance(values, Collection)
        check_int(len(values), field, 0, most)
        for value in values:
            check(value)

    return checked


def _check_collection(values: object, field: str) -> None:
    if not isinstance(values, Collection) or isinstance(values, str | bytes | Mapping):
        raise InvalidRequestError(f"{field} must be a list")


def _check_spans(spans: Any) -> None:
    _check_collection(spans, "ranges")
    check_int(len(spans), "ranges", 0, MOST_SPANS)
    _check_tuples(spans, "ranges", 3, "a partitionId, a first and a last seq")
    positions.check_spans(spans)


def _check_tuples(values: Iterable[Any], field: str, length: int, parts: str) -> None:
    for value in values:
        if not isinstance(value, tuple | list) or len(value) != length:
            raise InvalidRequestError(f"each of {field} must be {parts}")


def _check_archived(archived: Any) -> None:
    if not isinstance(archived, Mapping):
        raise InvalidRequestError("positions must map partition ids to seqs")
    positions.check_archived(archived)


def _check_columns(columns: Any) -> None:
    _check_collection(columns, "columns")
    for column in columns:
        check_name(column, "column")


# --- the calls -------------------------------------------------------------------------

_QUEUE = _name("queue")
_GROUP = _name("consumerGroup")
_PARTITION_ID = _int("partitionId", 1, _MOST)
_TRANSACTION_ID = _name("transactionId")
_FILTER = _request(DeadLetterFilter, check_dead_letter_filter)
_SEEK = _request(Seek, validated)
_STATE = _optional(_choice("state", ItemState))
_QUEUE_OR_ALL = {"queue": _optional(_QUEUE)}
_LABELS = {"namespace": _optional(_label("namespace")), "task": _optional(_label("task"))}
_RIGHTS: dict[str, Check] = {"commands": _bool("commands")}
_PAGE: dict[str, Check] = {"limit": _limit(), "after": _optional(paging.check_token)}

CHECKS: Mapping[str, Mapping[str, Check]] = {
    "lifecycle": {"limit": _limit(1_000_000)},
    "rekey_step": _PAGE,
    # queues
    "queue_settings": {"name": _QUEUE},
    "describe_queues": {"queues": _many("queues", 1000, _QUEUE)},
    # groups
    "subscribe": {
        "group": _GROUP,
        "start": check_start,
        **_QUEUE_OR_ALL,
        "namespace": _optional(_name("namespace")),
        "task": _optional(_name("task")),
    },
    # dead letters
    "list_dead_letters": {"which": _FILTER, **_PAGE},
    "count_dead_letters": {"which": _FILTER},
    # logs
    "list_deliveries": {**_QUEUE_OR_ALL, **_PAGE},
    "list_attempts": {**_QUEUE_OR_ALL, **_PAGE},
    "metrics": {
        **_QUEUE_OR_ALL,
        "since": _optional(_time("since")),
        "until": _optional(_time("until")),
        "limit": _limit(10_000),
    },
    # figures
    "get_partition": {"partition_id": _PARTITION_ID},
    "metrics_before": {"at": _time("at"), **_QUEUE_OR_ALL, **_PAGE},
    # settings
    "set_setting": {"key": _name("key"), "value": _optional(_text("value"))},
    # exports
    "export_plan": {
        "queue": _QUEUE,
        "created_from": _optional(_time("createdFrom")),
        "created_to": _optional(_time("createdTo")),
    },
    "export_read": {
        "partition_id": _PARTITION_ID,
        "first_seq": _int("from", 1, _MOST),
        "last_seq": _int("to", 0, _MOST),
        "max_bytes": _int("maxBytes", 1, 1 << 31),
    },
    "kept_spans": {"spans": _check_spans},
    "export_messages": {
        "spans": _check_spans,
        "columns": _check_columns,
        "max_bytes": _int("maxBytes", 1, 1 << 30),
    },
    "export_rows": {
        "table": _name("table"),
        "columns": _check_columns,
        "queues": _optional(_many("queues", 100_000, _QUEUE)),
    },
    "log_end": {"table": _name("table")},
    "set_archived": {"queue": _QUEUE, "positions": _check_archived},
    "archived": {"queue": _QUEUE},
    # for those who watch
    "queue_flows": {**_QUEUE_OR_ALL, **_LABELS, "limit": _limit(MOST_FLOWS)},
    "group_flows": {**_QUEUE_OR_ALL, "limit": _limit(MOST_FLOWS)},
    "list_standings": {"queue": _QUEUE, "group": _optional(_GROUP), **_PAGE},
    "standings_of": {"partition_id": _PARTITION_ID},
    "list_failing": {"queue": _QUEUE, "group": _GROUP, **_PAGE},
    "deliveries_of": {"partition_id": _PARTITION_ID, "seq": _int("seq", 1, _MOST), **_PAGE},
    "preview_seek": {"request": _SEEK},
    "skip": {
        "queue": _QUEUE,
        "group": _GROUP,
        "partition": _name("partition"),
        "seq": _int("seq", 1, _MOST),
        "error": _text("error"),
    },
    "dead_letter_errors": {"which": _FILTER, **_PAGE},
    "latencies": {
        "since": _time("since"),
        "until": _time("until"),
        **_QUEUE_OR_ALL,
        "samples": _limit(10_000),
    },
    "find_messages": {"queue": _QUEUE, "transaction_id": _TRANSACTION_ID},
    "newest_items": {"queue": _QUEUE, "state": _STATE, **_PAGE},
}
"""For each call, the checks of its arguments by name. An optional argument may be None."""


# --- rules over several arguments ------------------------------------------------------


def _check_subscription(given: Mapping[str, Any]) -> None:
    has_labels = given.get("namespace") is not None or given.get("task") is not None
    if given.get("queue") is not None:
        if has_labels:
            raise InvalidRequestError("subscribe to a queue, or to a namespace and task, not both")
    elif not has_labels:
        raise InvalidRequestError("a subscription needs a queue, a namespace or a task")


TOGETHER: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    "subscribe": _check_subscription,
    "export_rows": lambda given: positions.check_export_rows(
        given["table"],
        given["columns"],
        given.get("until"),
        given.get("queues"),
        given.get("limit", 1),
    ),
    "export_messages": lambda given: positions.check_columns("messages", list(given["columns"])),
    "log_end": lambda given: positions.check_log(given["table"]),
}


# --- the decorator ---------------------------------------------------------------------


def checks_arguments(cls: T) -> T:
    """Make a class check the arguments of the contract's calls before it carries them out."""
    for call in CHECKS:
        method = getattr(cls, call, None)
        if method is not None:
            setattr(cls, call, _checked(call, method))
    return cls


def _checked(call: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    checks, together = CHECKS[call], TOGETHER.get(call)
    parameters = [one for one in signature(method).parameters.values() if one.name != "self"]
    names = [one.name for one in parameters]
    required = {one.name for one in parameters if one.default is one.empty}

    @functools.wraps(method)
    async def checked(self: Any, *args: Any, **options: Any) -> Any:
        given = dict(zip(names, args, strict=False), **options)
        if required <= given.keys():  # else the call itself raises TypeError
            for name, value in given.items():
                check = checks.get(name)
                if check is not None:
                    check(value)
            if together is not None:
                together(given)
        return await method(self, *args, **options)

    return checked
