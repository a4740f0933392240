"""An offset into the messages of a queue is counted, not read."""

import pytest

from monarq.model import Push, PushItem, StoredMessage
from monarq.store import Store
from tests.store.calls import push_many
from tests.store.scenarios import every

pytestmark = pytest.mark.smoke


async def _behind(store: Store, offset: int, **which: object) -> list[StoredMessage]:
    """The messages behind an offset, as its token and the rows left name them."""
    after, left = await store.pass_messages("q", offset, **which)  # type: ignore[arg-type]
    page = await store.list_messages("q", limit=1000, after=after, **which)  # type: ignore[arg-type]
    return page.rows[left:]


@pytest.mark.parametrize("deleted", [(), ("b",), ("a", "c")])
async def test_every_offset_leads_where_reading_would(
    store: Store, deleted: tuple[str, ...]
) -> None:
    for count, partition in ((3, "a"), (1, "b"), (4, "c"), (2, "a")):
        await push_many(store, "q", count, partition=partition)
    for name in deleted:
        rows = (await store.list_messages("q", partition=name)).rows
        await store.delete_message(rows[0].partition_id, rows[0].transaction_id)
    for which in ({}, {"partition": "c"}, {"first_seq": 2}, {"partition": "a", "first_seq": 4}):
        rows = await every(store.list_messages, "q", **which)
        for offset in range(len(rows) + 3):
            assert await _behind(store, offset, **which) == rows[offset:], (which, offset)


async def test_an_offset_goes_on_from_a_page(store: Store) -> None:
    for partition in ("a", "b", "c"):
        await push_many(store, "q", 3, partition=partition)
    rows = await every(store.list_messages, "q")
    page = await store.list_messages("q", limit=2)
    after, left = await store.pass_messages("q", 5, after=page.next)
    assert left == 0
    assert (await store.list_messages("q", after=after)).rows == rows[7:]
    assert await store.pass_messages("q", 0, after=page.next) == (page.next, 0)


async def test_without_deleted_messages_nothing_is_left_to_read(store: Store) -> None:
    await store.push([Push([PushItem("q", b"1", f"p{n % 1500}") for n in range(3000)])])
    _, left = await store.pass_messages("q", 2999)
    assert left == 0
    assert len(await _behind(store, 2999)) == 1


async def test_partitions_with_deleted_messages_are_passed_over_too(store: Store) -> None:
    for partition in ("a", "b"):
        await push_many(store, "q", 5, partition=partition)
    rows = (await store.list_messages("q")).rows
    for row in (rows[1], rows[4]):
        await store.delete_message(row.partition_id, row.transaction_id)
    for offset, left in ((2, 2), (3, 0), (4, 0), (8, 0)):
        assert (await store.pass_messages("q", offset))[1] == left
