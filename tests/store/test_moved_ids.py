"""A dead message or item whose transaction id looks like an id of the place it is moved to."""

import pytest

from monarq.model import Ack, AckStatus, Pop, Push, PushItem, QueueKind
from monarq.store import Store
from tests.store.calls import unwrap

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize("kind", QueueKind)
async def test_it_is_neither_lost_nor_mistaken_for_another(store: Store, kind: QueueKind) -> None:
    await store.configure("grave", kind=kind)
    await store.configure("q", kind=kind, options={"deadQueue": "grave"})
    there = unwrap(await store.push([Push([PushItem("grave", b'"there"')] * 2)]))
    mistaken = there[1].message_id
    await store.push([Push([PushItem("q", b'"moved"', transaction_id=mistaken)])])
    popped = unwrap(await store.pop([Pop(queue="q")]))
    unwrap(await store.ack([Ack(lease_id=popped.lease_id, status=AckStatus.DEAD)]))
    grave = unwrap(await store.pop([Pop(queue="grave", batch=10)])).messages
    assert sorted(message.payload for message in grave) == [b'"moved"', b'"there"', b'"there"']
    assert len({message.transaction_id for message in grave}) == 3


async def test_one_id_in_two_partitions_of_one_push_is_a_duplicate_in_each(store: Store) -> None:
    request = Push([PushItem("q", b"1", "a", "z"), PushItem("q", b"1", "b", "z")])
    first = unwrap(await store.push([request]))
    again = unwrap(await store.push([request]))
    assert [one.status for one in again] == ["duplicate", "duplicate"]
    assert [one.message_id for one in again] == [one.message_id for one in first]
    assert first[0].partition_id != first[1].partition_id
