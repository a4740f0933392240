"""Leases that the published client renews."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.interop.verbs import data, moment, pending, pop, push


async def test_a_lease_is_renewed(queen: Any, name: str) -> None:
    await queen.queue(name).config({"lease_time": 20}).create()
    await push(queen, name, 1)
    [message] = await pop(queen, name)
    for renewed in (await queen.renew(message), await queen.renew(message["leaseId"])):
        assert renewed["success"] is True
        assert renewed["leaseId"] == message["leaseId"]
        assert moment(renewed["newExpiresAt"]) > datetime.now(UTC) + timedelta(seconds=15)


async def test_messages_under_one_lease_are_renewed_by_one_call(queen: Any, name: str) -> None:
    for n in range(3):
        await push(queen, name, n, partition=str(n))
    messages = await queen.queue(name).wait(False).batch(10).partitions(3).pop()
    assert len(messages) == 3
    [renewed] = await queen.renew(messages)
    assert renewed["success"] is True


async def test_a_lease_that_has_ended_is_not_renewed(queen: Any, name: str) -> None:
    await push(queen, name, 1)
    [message] = await pop(queen, name)
    assert (await queen.ack(message))["success"]
    refused = await queen.renew(message)
    assert refused["success"] is False
    assert "lease" in refused["error"]


async def test_a_lease_that_never_was_is_not_renewed(queen: Any) -> None:
    for lease in ("no-such-lease", "1.deadbeef"):
        refused = await queen.renew(lease)
        assert refused["success"] is False
        assert "lease" in refused["error"]


async def test_a_consumer_that_renews_keeps_its_message_past_the_lease_time(
    queen: Any, name: str
) -> None:
    await queen.queue(name).config({"lease_time": 1}).create()
    await push(queen, name, "long work")
    meanwhile: list[Any] = []

    async def handle(message: dict[str, Any]) -> None:
        others = queen.queue(name).wait(True).timeout_millis(1500).batch(1)
        meanwhile.append(await others.pop())

    await queen.queue(name).batch(1).renew_lease(True, 100).limit(1).consume(handle)
    assert meanwhile == [[]]
    assert await pending(queen, name) == 0


async def test_a_lease_that_nobody_renews_ends_and_its_message_is_delivered_again(
    queen: Any, name: str
) -> None:
    await queen.queue(name).config({"lease_time": 0.2}).create()
    await push(queen, name, "again")
    [first] = await pop(queen, name)
    others = queen.queue(name).wait(True).timeout_millis(15_000).batch(1)
    [second] = await others.pop()
    assert data([first, second]) == ["again", "again"]
    assert (first["attempts"], second["attempts"]) == (1, 2)
