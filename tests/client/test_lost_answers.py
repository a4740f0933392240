"""Acks that were carried out and whose answers were lost: the client repeats them, and nobody is
told that they came too late."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from monarq.client import consuming
from monarq.client.async_client import AsyncClient
from monarq.errors import LeaseTakenOverError
from tests.client.conftest import served
from tests.client.losing_proxy import LosingProxy, losing_proxy
from tests.client.test_consuming import until
from tests.kept_schemas import empty_schema
from tests.shared_postgres import POSTGRES_NAMES

JOINT_CALL = "POST /api/v1/pop/queue/q?"
ACK = "POST /api/v1/ack/batch"


class Way(NamedTuple):
    """To one broker, directly and through a proxy."""

    other: AsyncClient
    mq: AsyncClient
    proxy: LosingProxy


@pytest.fixture(params=["sqlite", "postgres"])
async def way(
    request: pytest.FixtureRequest, postgres_servers: Mapping[str, str], tmp_path: Path
) -> AsyncIterator[Way]:
    async with AsyncExitStack() as stack:
        place: dict[str, Any] = {}
        if request.param == "postgres":
            place["store"] = postgres_servers[POSTGRES_NAMES[-1]]
            place["schema"] = await stack.enter_async_context(empty_schema(place["store"]))
        url = await stack.enter_async_context(served(tmp_path, **place))
        proxy = await stack.enter_async_context(losing_proxy(url))
        other = await stack.enter_async_context(AsyncClient(url))
        mq = await stack.enter_async_context(AsyncClient(proxy.url))
        yield Way(other, mq, proxy)


@pytest.mark.parametrize(("batch", "each"), [(1, True), (1, False), (3, True), (3, False)])
async def test_a_consumer_whose_joint_call_was_not_answered_is_not_late(
    way: Way, caplog: pytest.LogCaptureFixture, batch: int, each: bool
) -> None:
    await way.other.queue("q").push_many(range(6))
    way.proxy.marks = {JOINT_CALL}
    seen: list[int] = []

    async def handle(got: Any) -> None:
        seen.extend([got.payload] if each else [message.payload for message in got])

    with caplog.at_level(logging.WARNING, "monarq.consumer"):
        async with way.mq.queue("q").consumer(handle, batch=batch, each=each, lease=300):
            await until(lambda: sum(r.startswith(JOINT_CALL) for r in way.proxy.requests) == 2)
    # What was leased along with the lost answer is delivered again when that lease is over.
    assert seen == list(range(batch))
    assert (await way.other.queue("q").stats()).completed == batch
    assert caplog.messages == []


async def test_a_lease_that_ended_with_a_lost_answer_was_not_lost(
    way: Way, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "RENEW_AFTER", 1e-3)
    await way.other.queue("q").push_many(range(2))
    way.proxy.marks = {JOINT_CALL}

    async def be_renewed() -> None:
        before = len(way.proxy.requests)
        await until(lambda: any("/extend" in line for line in way.proxy.requests[before:]))

    way.proxy.then = be_renewed
    with caplog.at_level(logging.WARNING, "monarq.consumer"):
        async with way.mq.queue("q").consumer(lambda _: None, lease=300):
            await until(lambda: sum(r.startswith(JOINT_CALL) for r in way.proxy.requests) == 2)
    assert caplog.messages == []


async def test_an_ack_that_was_not_answered_is_done_though_others_went_on(way: Way) -> None:
    queue = way.other.queue("q")
    await queue.push_many(range(4))
    way.proxy.marks = {ACK}

    async def go_on() -> None:
        for _ in range(2):
            await (await queue.pop()).ack()
        assert await queue.pop()

    way.proxy.then = go_on
    [message] = await way.mq.queue("q").pop()
    await message.ack()
    assert message.answered
    assert not way.proxy.marks


async def test_a_batch_whose_ack_was_not_answered_is_done_though_others_went_on(way: Way) -> None:
    queue = way.other.queue("q")
    await queue.push_many(range(4))
    way.proxy.marks = {ACK}

    async def go_on() -> None:
        assert await queue.pop()

    way.proxy.then = go_on
    batch = await way.mq.queue("q").pop(3)
    await batch.ack()
    assert batch.unanswered == []
    assert not way.proxy.marks


@pytest.mark.parametrize("batch", [1, 2])
async def test_where_nobody_knows_what_became_of_an_ack_that_is_said(
    way: Way, caplog: pytest.LogCaptureFixture, batch: int
) -> None:
    queue = way.other.queue("q")
    await queue.push_many(range(3))
    way.proxy.marks = {JOINT_CALL}

    async def undo() -> None:
        await queue.seek(to="start")
        assert await queue.pop(3, lease=300)

    way.proxy.then = undo
    with caplog.at_level(logging.WARNING, "monarq.consumer"):
        async with way.mq.queue("q").consumer(lambda _: None, batch=batch, each=False, lease=300):
            await until(lambda: bool(caplog.records))
    [message] = caplog.messages
    assert message.startswith("nobody knows whether")
    assert "another has been given since" in message or "later one" in message


async def test_an_ack_that_came_too_late_and_was_not_answered_is_not_taken_for_done(
    way: Way,
) -> None:
    queue = way.other.queue("q")
    await queue.push_many(range(2))
    [message] = await way.mq.queue("q").pop(lease=0.001)
    [again] = await queue.pop(wait=10)
    assert (again.payload, again.attempts) == (0, 2)
    way.proxy.marks = {ACK}
    way.proxy.then = again.ack
    with pytest.raises(LeaseTakenOverError) as caught:
        await message.ack()
    assert caught.value.repeated
    assert not message.answered
