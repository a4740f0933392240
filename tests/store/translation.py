"""The model's ids in the store's, and what a store answers as data that can be compared.

The store numbers its partitions and leases as it likes, and a message without a transaction id
of its own is named after its partition.
"""

from enum import StrEnum
from typing import Any

import msgspec

from monarq.errors import MonarqError, TransactionFailedError
from monarq.ids import message_id, parse_message_id
from monarq.model import (
    Ack,
    Acked,
    DeadLetter,
    MessageDetail,
    Popped,
    Push,
    Queue,
    QueueInfo,
    Renewed,
)
from monarq.store.message_list import MessageList
from tests.store.reference_ordered import EXPIRED, TOO_OLD, UNSAID

#: Where the model says one of these, a store words it as it likes.
OWN_WORDS = (EXPIRED, TOO_OLD, UNSAID)
ANYTHING = "(in the store's own words)"

#: Numbers of the store's own, and what is compared apart from the rest.
NOT_COMPARED: dict[type, tuple[str, ...]] = {
    Queue: ("id", "version"),
    QueueInfo: ("id",),
    DeadLetter: ("id",),
    MessageDetail: ("queue_options",),
    Popped: ("next_at",),
    Renewed: ("lease_id",),
}


class Ids:
    """The model's numbers for partitions and leases, and the store's."""

    def __init__(self) -> None:
        self._partitions: dict[int, int] = {}
        self._leases: dict[str, str] = {}

    def learn_partition(self, model: int, store: int) -> None:
        known = self._partitions.setdefault(model, store)
        assert known == store, f"partition {store} was {known} before"

    def learn_lease(self, model: str, store: str) -> None:
        assert store not in self._leases.values(), f"lease {store} was given twice"
        self._leases[model] = store

    def store_partition(self, model: int) -> int:
        return self._partitions.get(model, model)

    def knows(self, store: int) -> bool:
        return store in self._partitions.values()

    def model_partition(self, store: int) -> int:
        for ours, theirs in self._partitions.items():
            if theirs == store:
                return ours
        raise AssertionError(f"the store has a partition {store} that is not in the model")

    def store_lease(self, model: str | None) -> str | None:
        if model is None or model in self._leases:
            return self._leases.get(model or "")
        # Made up: the number of a lease that was given still means that one.
        number, dash, token = model.partition("-")
        for ours, theirs in self._leases.items():
            if ours.partition("-")[0] == number:
                return theirs.partition("-")[0] + dash + token
        return model

    def store_transaction_id(self, model: str | None) -> str | None:
        named = parse_message_id(model) if model else None
        return message_id(self.store_partition(named[0]), named[1]) if named else model

    def model_transaction_id(self, store: str) -> str:
        named = parse_message_id(store)
        return message_id(self.model_partition(named[0]), named[1]) if named else store


def to_store(ids: Ids, request: Push | Ack) -> Any:
    """A request in the store's ids."""
    replace = msgspec.structs.replace
    if isinstance(request, Ack):
        partition_id = request.partition_id
        return replace(
            request,
            transaction_id=ids.store_transaction_id(request.transaction_id),
            partition_id=None if partition_id is None else ids.store_partition(partition_id),
            lease_id=ids.store_lease(request.lease_id),
        )
    items = [
        replace(item, transaction_id=ids.store_transaction_id(item.transaction_id))
        for item in request.items
    ]
    return replace(request, items=items)


def plain(answer: Any, ids: Ids | None) -> Any:
    """As plain data in the model's ids. `ids` is None for what the model itself answered."""
    if isinstance(answer, TransactionFailedError):
        return {"code": answer.code, "operation": answer.operation, "cause": answer.cause.code}
    if isinstance(answer, MonarqError):
        return {"code": answer.code}
    if isinstance(answer, list | MessageList):
        return [plain(one, ids) for one in answer]
    if not isinstance(answer, msgspec.Struct):
        return answer
    hidden = NOT_COMPARED.get(type(answer), ())
    if isinstance(answer, Acked) and answer.transaction_id is None:
        hidden = ("queue", "partition")  # of a whole lease, which may cover several
    return {
        name: plain_field(name, getattr(answer, name), ids)
        for name in answer.__struct_fields__
        if name not in hidden
    }


def plain_field(name: str, value: Any, ids: Ids | None) -> Any:
    if name == "lease_id":
        return value is not None
    if value is msgspec.UNSET:
        return None
    if isinstance(value, msgspec.Struct):
        return plain(value, ids)
    if isinstance(value, msgspec.Raw):
        value = bytes(value)
    if name in ("headers", "raw_headers") and value is not None:
        headers = msgspec.json.decode(value, type=dict[str, Any])
        return {field: plain_field(field, content, ids) for field, content in headers.items()}
    if ids is None and value in OWN_WORDS:
        return ANYTHING
    if name == "states":
        return {state: count for state, count in value.items() if count}
    if ids is None or value is None:
        return plain(value, ids)
    if name == "partition_id":
        return ids.model_partition(value)
    is_item_id = name == "id" and isinstance(value, str)
    if is_item_id or name in ("transaction_id", "item_id", "message_id", "monarqRedrivenFrom"):
        return ids.model_transaction_id(value)
    return plain(value, ids)


def ignore_own_words(got: Any, expected: Any) -> Any:
    """`got`, with `ANYTHING` in place of what the model leaves to the store."""
    if expected == ANYTHING and (got is None or isinstance(got, str)):
        return ANYTHING
    if isinstance(got, list) and isinstance(expected, list) and len(got) == len(expected):
        return [ignore_own_words(g, e) for g, e in zip(got, expected, strict=True)]
    if isinstance(got, dict) and isinstance(expected, dict):
        return {name: ignore_own_words(value, expected.get(name)) for name, value in got.items()}
    return got


def short(value: Any) -> str:
    """As source text, without the fields that have their default."""
    if isinstance(value, list):
        return f"[{', '.join(map(short, value))}]"
    if not isinstance(value, msgspec.Struct):
        return repr(str(value)) if isinstance(value, StrEnum) else repr(value)
    said = [
        f"{field.name}={short(getattr(value, field.name))}"
        for field in msgspec.structs.fields(value)
        if getattr(value, field.name) != field.default
    ]
    return f"{type(value).__name__}({', '.join(said)})"
