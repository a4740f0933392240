"""A whole broker whose pushes go to the buffer."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from monarq.broker import parts
from monarq.broker.broker import Broker
from monarq.broker.failover import Route
from monarq.config import Settings
from monarq.model import Push, PushItem, PushStatus
from monarq.store import Store, open_store
from tests.broker.buffering import until


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
