"""Messages that die for one group."""

from monarq.store import Store
from tests.store.calls import ack, pop_one, push
from tests.store.scenarios import DEAD


async def bury(
    store: Store,
    queue: str,
    payload: bytes,
    group: str = "g",
    partition: str = "Default",
    error: str = "why",
) -> None:
    """Push a message and let it die for this group, past everything before it."""
    answer = await push(store, queue, payload, partition=partition)
    for _ in range(1000):
        message, lease = await pop_one(store, queue, group=group, partition=partition)
        if message.seq == answer.seq:
            await ack(store, message, lease, DEAD, group=group, error=error)
            return
        await ack(store, message, lease, group=group)
