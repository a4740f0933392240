"""A store in which callers have left texts in every place that takes one."""

from monarq.model import DEFAULT_GROUP, Ack, Message
from monarq.store import Store
from tests.store.calls import ack, ack_all, pop, pop_one, push_many, transaction
from tests.store.scenarios import DEAD, FAILED, WORK

OTHER_KEY = bytes(range(100, 132))
ERROR = "ValueError: card 4111-marker declined\n  at line 12"
KIND_OF_ERROR = "ValueError: card 4111-marker declined"
RESULT = b'{"stdout":"result-marker"}'
OUTPUT = b"output-marker\n"
TRACE = b'{"note":"trace-marker"}'
MARKERS = (b"4111-marker", b"result-marker", b"output-marker", b"trace-marker")


async def two_queues(store: Store, *, encrypted: bool = True, **options: object) -> None:
    """An ordered queue `q` and a work queue `w`."""
    given = {"encryptionEnabled": encrypted, **options}
    await store.configure("q", options={"retryDelay": 0, "retryLimit": 100, **given})
    await store.configure("w", kind=WORK, options={"maxAttempts": 3, **given})


async def answer_in_every_way(store: Store) -> Message:
    """Leave the markers wherever a caller's text can go; the message that has a trace."""
    await push_many(store, "q", 6)
    # One message, a whole lease, in a transaction, dead, skipped.
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, FAILED, error=ERROR)
    await ack_all(store, await pop(store, "q", 2), FAILED, error=ERROR)
    popped = await pop(store, "q", 1)
    await transaction(
        store,
        Ack(
            status=FAILED,
            lease_id=popped.lease_id,
            transaction_id=popped.messages[0].transaction_id,
            partition_id=popped.messages[0].partition_id,
            error=ERROR,
        ),
    )
    traced, lease = await pop_one(store, "q")
    await ack(store, traced, lease, DEAD, error=ERROR)
    await store.skip("q", DEFAULT_GROUP, "Default", traced.seq + 1, ERROR)
    await store.add_trace(traced.partition_id, traced.transaction_id, TRACE, event_type="note")
    await push_many(store, "w", 6)
    item, lease = await pop_one(store, "w")
    await store.append_output(item.transaction_id, 1, OUTPUT)
    await ack(store, item, lease, error=ERROR, result=RESULT)
    await ack_all(store, await pop(store, "w", 2), FAILED, error=ERROR, result=RESULT)
    item, lease = await pop_one(store, "w")
    await ack(store, item, lease, DEAD, error=ERROR, result=RESULT)
    popped = await pop(store, "w", 2)
    await store.ack(
        [
            Ack(
                lease_id=popped.lease_id,
                transaction_id=one.transaction_id,
                partition_id=one.partition_id,
                result=RESULT,
            )
            for one in popped.messages
        ]
    )
    return traced
