"""Pushes whose payloads are numbers, and which of them are stored."""

from monarq.model import Push, PushItem
from monarq.store import Store
from tests.store.scenarios import every


def of(*payloads: int, queue: str = "q", partition: str = "p") -> list[Push]:
    """One request a payload."""
    return [Push([PushItem(queue, b"%d" % n, partition)]) for n in payloads]


async def stored(store: Store, queue: str = "q") -> list[int]:
    rows = await every(store.list_messages, queue)
    return sorted(int(row.payload) for row in rows)
