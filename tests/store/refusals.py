"""Calls that must be refused, and change nothing."""

from collections.abc import Awaitable

import pytest

from monarq.errors import MonarqError, TransactionFailedError
from monarq.ids import parse_lease_id
from monarq.model import AckStatus, Message
from monarq.store import Store
from tests.store.calls import ack, ack_of, transaction
from tests.store.scenarios import nothing_changes

EVERY_STATUS = list(AckStatus)


async def error_of(call: Awaitable[object]) -> str:
    with pytest.raises(MonarqError) as caught:
        await call
    return caught.value.code


async def check_refused(
    store: Store, message: Message, lease: str | None, code: str, group: str = "__QUEUE_MODE__"
) -> None:
    """With every status, alone and in a transaction, and nothing changes."""
    async with nothing_changes(store):
        for status in EVERY_STATUS:
            refused = await error_of(ack(store, message, lease, status, group=group))
            assert refused == code, f"{status}: {refused}, not {code}"
        request = ack_of(message, lease, group=group)
        with pytest.raises(TransactionFailedError) as caught:
            await transaction(store, request)
        assert caught.value.cause.code == code


def wrong_token(lease: str) -> str:
    number, token = parse_lease_id(lease)
    return f"{number}-{'0' * 16 if token != '0' * 16 else '1' * 16}"
