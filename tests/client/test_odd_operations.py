"""Each way to a broker refuses odd values of an operation's fields with the same error."""

from typing import Any

import pytest

from monarq.client.async_client import AsyncClient
from monarq.errors import InvalidRequestError, MonarqError
from monarq.operations import OPERATIONS, Operation
from monarq.operations.validation import validated
from tests.operations.samples import fields_of, odd_requests


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_every_way_gives_the_same_error(
    mq: AsyncClient, operation: type[Operation[Any]]
) -> None:
    for field in fields_of(operation):
        for request in odd_requests(operation, field):
            expected = _refusal(request)
            try:
                await mq.admin.call(request)
                told = None
            except MonarqError as error:
                told = str(error) if isinstance(error, InvalidRequestError) else None
            if expected is not None:
                assert told == expected, request


def _refusal(request: Operation[Any]) -> str | None:
    try:
        validated(request)
    except InvalidRequestError as error:
        return str(error)
    return None
