"""What a client refuses alike wherever its broker is: JSON has no word for some of it."""

import math
from collections.abc import Awaitable, Callable

import pytest

from monarq.client.async_client import AsyncClient
from monarq.client.buffering import UnsentError
from monarq.errors import InvalidRequestError, NotFoundError, TransactionFailedError
from monarq.model import Push, PushItem, QueueKind

Act = Callable[[AsyncClient], Awaitable[object]]

LONE = "\ud800"
NO_NUMBERS: dict[str, tuple[Act, str]] = {
    "delay": (lambda mq: mq.queue("w").push(1, delay=math.nan), "delaySeconds"),
    "long delay": (lambda mq: mq.queue("w").push(1, delay=math.inf), "delaySeconds"),
    "time": (lambda mq: mq.queue("w").push(1, run_at=math.nan), "nan is no time"),
    "endless time": (lambda mq: mq.queue("w").push(1, run_at=math.inf), "inf is no time"),
    "backoff": (
        lambda mq: mq.push(Push([PushItem("w", b"1", backoff_base=math.nan)])),
        "backoffBase",
    ),
    "lease": (lambda mq: mq.queue("w").pop(lease=math.nan), "leaseTime"),
    "renewed lease": (lambda mq: mq.renew("1-abc", math.inf), "seconds"),
    "option": (lambda mq: mq.queue("w").configure(lease_time=math.nan), "leaseTime"),
    "record": (
        lambda mq: mq.admin.put_record("kind", "key", b"1", keep_seconds=math.nan),
        "keepSeconds",
    ),
}
NO_NUMBERS_OF_A_STORE: dict[str, tuple[Act, str]] = {
    "partition id": (lambda mq: mq.admin.get_message(2**80, "x"), "partitionId"),
    "limit": (lambda mq: mq.admin.list_queues(limit=0), "limit"),
    "first seq": (lambda mq: mq.admin.list_messages("q", first_seq=-1), "firstSeq"),
}
NO_TEXT: dict[str, tuple[Act, str]] = {
    "transaction id": (lambda mq: mq.queue("q").push(1, transaction_id=LONE), "transactionId"),
    "trace id": (lambda mq: mq.queue("q").push(1, trace_id=LONE), "traceId"),
    "partition": (lambda mq: mq.queue("q").partition(LONE).push(1), "partition"),
    "queue": (lambda mq: mq.admin.get_queue(LONE), "queue"),
    "queue to clear": (lambda mq: mq.admin.clear_queue("a\0"), "queue"),
    "group": (lambda mq: mq.admin.list_groups(queue="q", group=LONE), "group"),
    "message": (lambda mq: mq.admin.get_message(1, LONE), "transactionId"),
    "record key": (lambda mq: mq.admin.put_record("kind", LONE, b"1"), "key"),
    "trace name": (lambda mq: mq.admin.list_traces(name=LONE), "name"),
    "target of a redrive": (lambda mq: mq.admin.redrive(all=True, to_queue=LONE), "toQueue"),
    "popped group": (lambda mq: mq.queue("q").pop(group=LONE), "consumerGroup"),
}


@pytest.mark.parametrize("what", [*NO_NUMBERS, *NO_NUMBERS_OF_A_STORE, *NO_TEXT])
async def test_what_json_cannot_say_is_refused_by_its_name(mq: AsyncClient, what: str) -> None:
    await mq.queue("w").configure(kind=QueueKind.WORK)
    act, field = (NO_NUMBERS | NO_NUMBERS_OF_A_STORE | NO_TEXT)[what]
    with pytest.raises(InvalidRequestError, match=field):
        await act(mq)
    assert (await mq.admin.list_items("w", order="next")).rows == []
    assert (await mq.queue("w").info()).options.lease_time == 300
    with pytest.raises(NotFoundError):
        await mq.admin.get_record("kind", "key")


async def test_no_lease_is_renewed_for_what_is_no_time(mq: AsyncClient) -> None:
    await mq.queue("q").push(1)
    batch = await mq.queue("q").pop()
    for renewing in (batch.renew(math.nan), batch[0].renew(math.inf)):
        with pytest.raises(InvalidRequestError, match="seconds"):
            await renewing


async def test_a_transaction_says_which_operation_was_refused(mq: AsyncClient) -> None:
    await mq.queue("w").configure(kind=QueueKind.WORK)
    tx = mq.transaction()
    tx.push(mq.queue("w"), 1)
    tx.push(mq.queue("w"), 2, delay=math.nan)
    with pytest.raises(TransactionFailedError, match="delaySeconds") as refused:
        await tx.__aexit__(None)
    assert refused.value.operation == 1
    assert (await mq.admin.list_items("w", order="next")).rows == []


async def test_a_buffer_keeps_what_was_refused(mq: AsyncClient) -> None:
    async with mq.queue("q").buffer() as buffer:
        await buffer.add(1, transaction_id=LONE)
        with pytest.raises(UnsentError, match="transactionId") as refused:
            await buffer.flush()
    assert [item.payload for item in refused.value.unsent] == [b"1"]
