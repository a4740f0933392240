"""Carries out operations: by their handler in this package, or in the store."""

from __future__ import annotations

from typing import TypeVar

from monarq.broker import dead_letter_operations, group_operations
from monarq.broker.operations import Composition, handles
from monarq.operations import BROKER_OPERATIONS
from monarq.operations.handlers import check
from monarq.operations.operation import Operation
from monarq.operations.validation import validated
from monarq.store.contract import Store

R = TypeVar("R")

#: Modules whose import registers handlers.
HANDLER_MODULES = (dead_letter_operations, group_operations)

check("the broker", handles, wanted=BROKER_OPERATIONS)


async def carry_out(store: Store, request: Operation[R], *, now: int, commands: bool = True) -> R:
    """Validate an operation and carry it out; `now` is in microseconds since 1970.

    Without `commands` the caller may not work on shell commands.
    """
    handler = handles.table.get(type(request))
    if handler is None:
        return await store.call(request, commands=commands)
    result: R = await handler(Composition(store, now, commands), validated(request))
    return result
