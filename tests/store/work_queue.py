"""A work queue `w`, and an item of it that fails."""

from monarq.model import AckStatus, Item
from monarq.store import Store
from tests.store.calls import ack, pop_one, push_many
from tests.store.scenarios import FAILED, WORK


async def work(store: Store, count: int = 1, **options: object) -> list[str]:
    """A work queue `w` with this many items; their ids."""
    await store.configure("w", kind=WORK, options=options)
    if not count:
        return []
    return [answer.message_id for answer in await push_many(store, "w", count)]


async def fail(store: Store, status: AckStatus = FAILED, error: str = "no") -> Item:
    """Lease the next item and answer so; the item as it is then."""
    item, lease = await pop_one(store, "w")
    await ack(store, item, lease, status, error=error)
    return await store.get_item(item.id)
