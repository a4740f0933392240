"""Short forms of the store's calls for tests: one request in, its answer out, or its error raised.

The store's own calls take many requests and answer each; a test of one thing mostly sends one.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from monarq.errors import MonarqError
from monarq.model import (
    Ack,
    Acked,
    AckStatus,
    Item,
    Message,
    Pop,
    Popped,
    Push,
    Pushed,
    PushItem,
    Renew,
    Renewed,
    Transaction,
    TransactionDone,
)
from monarq.store.contract import Outcome, Store

T = TypeVar("T")


def unwrap(outcomes: Sequence[Outcome[T]]) -> T:
    """The one answer of a call with one request; raises if it is an error."""
    [outcome] = outcomes
    if isinstance(outcome, MonarqError):
        raise outcome
    return outcome


def code_of(outcome: Outcome[Any]) -> str | None:
    """The error code of an answer, or None if it is none."""
    return outcome.code if isinstance(outcome, MonarqError) else None


async def push_items(store: Store, *items: PushItem, producer: str | None = None) -> list[Pushed]:
    """One request with these items."""
    return unwrap(await store.push([Push(list(items), producer)]))


async def push(store: Store, queue: str, payload: bytes = b"{}", **fields: Any) -> Pushed:
    """One request with one item; `fields` are those of `PushItem`."""
    [pushed] = await push_items(store, PushItem(queue, payload, **fields))
    return pushed


async def push_many(store: Store, queue: str, count: int, **fields: Any) -> list[Pushed]:
    """One request with the payloads `1`, `2` … `count`."""
    items = [PushItem(queue, b"%d" % n, **fields) for n in range(1, count + 1)]
    return await push_items(store, *items)


async def pop(store: Store, queue: str | None = None, batch: int = 1, **fields: Any) -> Popped:
    """One request; `fields` are those of `Pop`."""
    return unwrap(await store.pop([Pop(queue=queue, batch=batch, **fields)]))


async def pop_one(store: Store, queue: str, **fields: Any) -> tuple[Message, str]:
    """The one message that must be there, and its lease id."""
    popped = await pop(store, queue, 1, **fields)
    [message] = popped.messages
    assert popped.lease_id is not None
    return message, popped.lease_id


async def seqs(store: Store, queue: str, batch: int = 100, **fields: Any) -> list[int]:
    """The seqs that a pop delivers."""
    return [message.seq for message in (await pop(store, queue, batch, **fields)).messages]


def ack_of(
    message: Message | Pushed | Item,
    lease_id: str | None,
    status: AckStatus = AckStatus.COMPLETED,
    **fields: Any,
) -> Ack:
    """The answer to one message, by its transaction id; `fields` are those of `Ack`."""
    return Ack(
        status=status,
        transaction_id=message.transaction_id,
        partition_id=message.partition_id,
        lease_id=lease_id,
        **fields,
    )


async def ack(
    store: Store,
    message: Message | Pushed,
    lease_id: str | None,
    status: AckStatus = AckStatus.COMPLETED,
    **fields: Any,
) -> Acked:
    """Answer one message; `fields` are those of `Ack`."""
    return unwrap(await store.ack([ack_of(message, lease_id, status, **fields)]))


async def ack_all(
    store: Store, popped: Popped, status: AckStatus = AckStatus.COMPLETED, **fields: Any
) -> Acked:
    """Answer all that has no answer yet under the lease."""
    return unwrap(await store.ack([Ack(status=status, lease_id=popped.lease_id, **fields)]))


async def renew(store: Store, lease_id: str, seconds: float) -> Renewed:
    return unwrap(await store.renew([Renew(lease_id, seconds)]))


async def transaction(
    store: Store, *operations: Push | Ack, required_leases: Sequence[str] = ()
) -> TransactionDone:
    return unwrap(await store.transaction([Transaction(list(operations), list(required_leases))]))


async def next_items(store: Store, queue: str, limit: int = 100) -> list[Item]:
    """The ready items in the order in which they will be leased."""
    return (await store.list_items(queue, order="next", limit=limit)).rows
