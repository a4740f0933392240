"""What the newest client can ask of other servers and not of ours: it is told so, clearly."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.clients import NEWEST
from tests.interop.verbs import of_version, pop, push

CALLS: dict[str, Callable[[Any, str], Any]] = {
    "keys": lambda queen, name: queen.kv.get("tests", name),
    "locks": lambda queen, name: queen.locks.get(name),
    "timers": lambda queen, name: queen.timers.schedule(name, "key", {}, delay_ms=1),
    "pending timers": lambda queen, name: queen.timers.list(name),
    "reads by offset": lambda queen, name: queen.queue(name).fetch("Default"),
    "changed partitions": lambda queen, name: queen.queue(name).changed_since(),
    "ephemeral queues": lambda queen, name: queen.ephemeral.push(name, {"data": 1}),
}


@of_version(NEWEST)
@pytest.mark.parametrize("call", CALLS)
async def test_what_is_not_ours_is_not_found(queen: Any, name: str, call: str) -> None:
    with pytest.raises(Exception, match=r"(?i)/api/v1/|does not support") as refused:
        await CALLS[call](queen, name)
    assert refused.value.response.status_code == 404


@of_version(NEWEST)
async def test_a_body_that_is_not_json_is_refused(new_queen: Any, name: str) -> None:
    binary = new_queen(binary_push=True)
    with pytest.raises(Exception, match="application/json") as refused:
        await push(binary, name, 1)
    assert refused.value.response.status_code == 415
    assert await pop(binary, name) == []
