"""A whole broker whose pushes go to the buffer."""

import asyncio
import os
import threading
from pathlib import Path

import asyncpg
import pytest

from monarq.broker import parts
from monarq.broker.broker import Broker
from monarq.broker.failover import Route
from monarq.config import Settings
from monarq.errors import StoreUnavailableError
from monarq.model import Push, PushItem, PushStatus
from monarq.store import Store, open_store
from tests.broker.buffering import until
from tests.broker.calls import ack, pop, push
from tests.broker.conftest import StartBroker
from tests.store.conftest import Place


async def test_a_slow_disk_writes_no_push_down_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit is the store's: a push on its way to the buffer is not given up by it."""
    store = await open_store("memory:")

    async def opener() -> Store:
        return store

    may_sync = threading.Event()
    may_sync.set()
    real = os.fdatasync

    def fdatasync(fd: int) -> None:
        assert may_sync.wait(20)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    monkeypatch.setattr(parts, "_GRACE", 0.0)
    settings = Settings(store_timeout_seconds=0.02, buffer_retry_seconds=0.01)
    broker = await Broker.start(opener, settings, buffer_dir=tmp_path)
    await broker.set_maintenance(push=True)
    await broker.push(Push([PushItem("q", b"0")]))
    may_sync.clear()
    pushes = [broker.submit_push(Push([PushItem("q", b"%d" % number)])) for number in (1, 2)]
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 5 * settings.store_timeout_seconds
    await until(lambda: loop.time() > deadline)
    may_sync.set()
    for answers in await asyncio.gather(*pushes):
        assert [answer.status for answer in answers] == [PushStatus.BUFFERED]
    await broker.set_maintenance(push=False)
    failover = broker._parts.failover
    assert failover is not None
    await until(lambda: failover.route is Route.DIRECT)
    rows = (await store.list_messages("q")).rows
    assert [row.payload for row in rows] == [b"0", b"1", b"2"]
    await broker.close()


async def set_disk_full(place: Place, is_full: bool) -> None:
    """Whether what is written anew fails as it does where there is no room for it."""
    connection = await asyncpg.connect(place.address)
    try:
        await connection.execute(f"""
            create or replace function "{place.schema}".no_room() returns trigger language plpgsql
            as $$ begin
                raise disk_full using message = 'could not extend file: No space left on device';
            end $$""")
        for table in ("segments", "deliveries"):
            await connection.execute(
                f'create trigger no_room before insert on "{place.schema}".{table} '
                f'for each statement execute function "{place.schema}".no_room()'
                if is_full
                else f'drop trigger no_room on "{place.schema}".{table}'
            )
    finally:
        await connection.close()


@pytest.mark.parametrize("place", ["postgres-newest"], indirect=True)
async def test_a_full_disk_of_postgresql_loses_nothing_that_was_answered(
    start_broker: StartBroker, place: Place, tmp_path: Path
) -> None:
    broker = await start_broker(clock=None, buffer_dir=tmp_path, buffer_retry_seconds=0.01)
    pushed = [await push(broker, "q", b"%d" % number) for number in range(3)]
    popped = await pop(broker, "q", batch=1, group="g")
    await set_disk_full(place, True)
    pushed += [await push(broker, "q", b"%d" % number) for number in range(3, 6)]
    assert [answer.status for answer in pushed] == [PushStatus.QUEUED] * 3 + [
        PushStatus.BUFFERED
    ] * 3
    with pytest.raises(StoreUnavailableError):
        await ack(broker, popped, group="g")
    await set_disk_full(place, False)
    failover = broker._parts.failover
    assert failover is not None
    await until(lambda: failover.route is Route.DIRECT)
    [acked] = await ack(broker, popped, group="g")
    assert acked.lease_released
    rest = await pop(broker, "q", batch=10, group="g")
    assert [each.payload for each in rest.messages] == [b"%d" % number for number in range(1, 6)]
    assert {each.attempts for each in rest.messages} == {1}
