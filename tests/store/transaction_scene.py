"""A store in the middle of things, for transactions that succeed and that fail."""

from dataclasses import dataclass

from monarq.clock import ManualClock
from monarq.model import Ack, Message, Popped, Push, PushItem
from monarq.store import Store
from tests.store.calls import ack_of, pop, push, push_many
from tests.store.scenarios import DEAD, FAILED, WORK


@dataclass
class Scene:
    """A store in the middle of things: leased messages and items, a full queue, a dead queue."""

    clock: ManualClock
    messages: Popped
    items: Popped

    @property
    def first(self) -> Message:
        return self.messages.messages[0]

    @property
    def good(self) -> list[Push | Ack]:
        """Operations of every kind that would all succeed, and leave both leases live."""
        one, two, three, _ = self.messages.messages
        item, other, _ = self.items.messages
        return [
            Push([PushItem("q", b"new"), PushItem("brand new", b"1", partition="p")]),
            ack_of(one, self.messages.lease_id),
            Push([PushItem("w", b"new", transaction_id="unique")]),
            ack_of(two, self.messages.lease_id, DEAD),
            ack_of(item, self.items.lease_id),
            ack_of(three, self.messages.lease_id, FAILED),
            ack_of(other, self.items.lease_id, DEAD),
        ]


async def make_scene(store: Store, clock: ManualClock) -> Scene:
    await store.configure("grave", kind=WORK)
    await store.configure("q", options={"retryLimit": 0})
    await store.configure("w", kind=WORK, options={"deadQueue": "grave"})
    await store.configure("full", options={"maxSize": 1})
    await push(store, "full")
    await push_many(store, "q", 6)
    await push_many(store, "w", 5)
    clock.advance(1)
    return Scene(clock, await pop(store, "q", 4), await pop(store, "w", 3))
