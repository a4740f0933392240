"""Odd values, and sound ones for the fields that an operation requires."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from monarq.model.queue_options import QUEUE_OPTIONS
from monarq.operations import Operation
from monarq.operations.queues import Configure

ODD: list[Any] = [
    *("", "\0", "a\nb", "\ud800", "x" * 256, "é", "{queue}", "..", "a/b", "null", "YQ==", "1-2"),
    *(-1, 0, 1, 2**31, 2**53 + 1, 2**63, 2**80, -(2**80), True, 1.5, float("nan"), float("inf")),
    *(b"", b"\xff", b"{nope", None, [], {}, (), {1}, object(), datetime(2020, 1, 1, tzinfo=UTC)),
    *([""], ["\ud800"], [0], [2**80], [None], {"a\0b": 1}, {"odd": 1}, {1: 1}),
]

SOUND: dict[str, Any] = {
    "kind": "k",
    "key": "k",
    "value": b"1",
    "group": "g",
    "queue": "q",
    "item_id": "1-1",
    "attempt": 1,
    "data": b"1",
    "partition_id": 1,
    "transaction_id": "t",
}
"""A value for each required field, by name."""

BESIDES: dict[str, dict[str, Any]] = {
    "Seek": {"seq": 1},
    "Subscribe": {"start": "all"},
    "ListTraces": {"name": "n"},
}
"""Fields that the other rules of an operation need."""


def fields_of(operation: type[Operation[Any]]) -> list[str]:
    """Return the names of its fields. One such as `options.max_size` is an entry of a mapping."""
    names = [info.name for info in msgspec.structs.fields(operation)]
    if operation is Configure:
        names += [f"options.{option.name}" for option in QUEUE_OPTIONS]
    return names


def sound_fields(operation: type[Operation[Any]]) -> dict[str, Any]:
    required = [info.name for info in msgspec.structs.fields(operation) if info.required]
    return {name: SOUND[name] for name in required} | BESIDES.get(operation.__name__, {})


def odd_requests(operation: type[Operation[Any]], field: str) -> list[Operation[Any]]:
    """Return an operation for each odd value of the field; all other fields are sound."""
    name, _, entry = field.partition(".")
    values = [{entry: value} for value in ODD] if entry else ODD
    return [operation(**{**sound_fields(operation), name: value}) for value in values]
