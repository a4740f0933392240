"""An offset into the messages of a queue is counted, not read."""

from typing import Any

import pytest

from monarq.model import Push, PushItem, QueueKind, StoredMessage
from monarq.operations.messages import ListMessages
from monarq.store import Store
from tests.store.calls import push_many
from tests.store.scenarios import every

pytestmark = pytest.mark.smoke


async def _passed(store: Store, offset: int, **which: Any) -> ListMessages:
    return await store.pass_messages(ListMessages(queue="q", offset=offset, **which))


async def _behind(store: Store, offset: int, **which: Any) -> list[StoredMessage]:
    """The messages behind an offset, as its token and the rows left name them."""
    left = await _passed(store, offset, **which)
    page = await store.list_messages("q", limit=1000, after=left.after, **which)
    return page.rows[left.offset :]


@pytest.mark.parametrize("deleted", [(), ("b",), ("a", "c")])
async def test_every_offset_leads_where_reading_would(
    store: Store, deleted: tuple[str, ...]
) -> None:
    for count, partition in ((3, "a"), (1, "b"), (4, "c"), (2, "a")):
        await push_many(store, "q", count, partition=partition)
    for name in deleted:
        rows = (await store.list_messages("q", partition=name)).rows
        await store.delete_message(rows[0].partition_id, rows[0].transaction_id)
    in_part: dict[str, Any] = {"partition": "a", "first_seq": 4}
    for which in ({}, {"partition": "c"}, {"first_seq": 2}, in_part):
        rows = await every(store.list_messages, "q", **which)
        for offset in range(len(rows) + 3):
            assert await _behind(store, offset, **which) == rows[offset:], (which, offset)
            page = await store.list_messages("q", offset=offset, **which)
            assert page.rows == rows[offset:], (which, offset)


async def test_an_offset_goes_on_from_a_page(store: Store) -> None:
    for partition in ("a", "b", "c"):
        await push_many(store, "q", 3, partition=partition)
    rows = await every(store.list_messages, "q")
    page = await store.list_messages("q", limit=2)
    left = await _passed(store, 5, after=page.next)
    assert left.offset == 0
    assert (await store.list_messages("q", after=left.after)).rows == rows[7:]
    assert (await _passed(store, 0, after=page.next)).after == page.next


async def test_without_deleted_messages_nothing_is_left_to_read(store: Store) -> None:
    await store.push([Push([PushItem("q", b"1", f"p{n % 1500}") for n in range(3000)])])
    assert (await _passed(store, 2999)).offset == 0
    assert len(await _behind(store, 2999)) == 1


async def test_partitions_with_deleted_messages_are_passed_over_too(store: Store) -> None:
    for partition in ("a", "b"):
        await push_many(store, "q", 5, partition=partition)
    rows = (await store.list_messages("q")).rows
    for row in (rows[1], rows[4]):
        await store.delete_message(row.partition_id, row.transaction_id)
    for offset, left in ((2, 2), (3, 0), (4, 0), (8, 0)):
        assert (await _passed(store, offset)).offset == left


async def test_the_items_of_a_work_queue_are_left_to_read(store: Store) -> None:
    await store.configure("q", kind=QueueKind.WORK)
    await push_many(store, "q", 5)
    assert (await _passed(store, 3)).offset == 3
    assert [row.seq for row in (await store.list_messages("q", offset=3)).rows] == [4, 5]
