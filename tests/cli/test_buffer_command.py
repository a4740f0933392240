"""`monarq buffer`: what was set aside can be looked at and put back."""

import asyncio
import json
from pathlib import Path

import pytest

from monarq.broker.failover import store_name
from monarq.broker.push_buffer import PushBuffer
from monarq.config import Settings
from monarq.crypto import Cipher
from monarq.errors import QueueFullError
from monarq.model import Push, PushItem
from tests.broker.buffering import drain, fill, push_of
from tests.cli.conftest import Run

STORE = "postgresql://user:secret@db/monarq"
KEY = "ab" * 32


async def set_one_aside(data: Path, cipher: Cipher | None) -> None:
    name = store_name(Settings(store=STORE))
    buffer = await PushBuffer.open(data / "buffer", store=name, cipher=cipher)
    items = [PushItem("q", b'{"n": 1}', "p", transaction_id="t"), PushItem("q", b"2")]
    await buffer.append("m", [Push(items, "billing"), push_of("good")])
    [record] = await buffer.peek()
    await buffer.set_aside([(record, 0, QueueFullError("the queue is full"))])
    await buffer.done([record])
    await buffer.close()


async def buffered(data: Path, cipher: Cipher | None) -> list[Push]:
    """What a broker on this store would replay."""
    name = store_name(Settings(store=STORE))
    buffer = await PushBuffer.open(data / "buffer", store=name, cipher=cipher)
    entries = await drain(buffer)
    await buffer.close()
    return [push for entry in entries for push in entry.pushes]


@pytest.mark.parametrize("key", ["", KEY])
def test_a_push_that_was_set_aside_is_listed_shown_and_put_back(
    monarq: Run, tmp_path: Path, key: str
) -> None:
    data = tmp_path / "data"
    cipher = Cipher([bytes.fromhex(key)]) if key else None
    asyncio.run(set_one_aside(data, cipher))
    place = ("--data-dir", str(data))

    listed = monarq("buffer", "list", "--json", *place, MONARQ_ENCRYPTION_KEYS=key)
    [file] = json.loads(listed.stdout)["files"]
    assert (file["pushes"], file["unreadable_bytes"]) == (1, 0)
    assert "the queue is full" in file["reason"]
    assert file["name"] in monarq("buffer", "list", *place, MONARQ_ENCRYPTION_KEYS=key).stdout

    shown = monarq("buffer", "show", file["name"], *place, MONARQ_ENCRYPTION_KEYS=key)
    [line] = map(json.loads, shown.stdout.splitlines())
    assert [item["payload"] for item in line["items"]] == [{"n": 1}, 2]
    assert (line["producer"], line["items"][0]["transactionId"]) == ("billing", "t")

    store = ("--store", STORE)
    done = monarq("buffer", "requeue", file["name"], *place, *store, MONARQ_ENCRYPTION_KEYS=key)
    assert (done.returncode, "1 pushes" in done.stderr) == (0, True), done.stderr
    assert json.loads(monarq("buffer", "list", "--json", *place).stdout)["files"] == []
    [push] = asyncio.run(buffered(data, cipher))
    assert push.producer == "billing"
    assert [item.payload for item in push.items] == [b'{"n":1}', b"2"]


def test_records_whose_key_was_missing_are_put_back_once_it_is_there(
    monarq: Run, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    cipher = Cipher([bytes.fromhex(KEY)])

    async def lose_the_key() -> None:
        name = store_name(Settings(store=STORE))
        buffer = await PushBuffer.open(data / "buffer", store=name, cipher=cipher)
        await fill(buffer, "1", "2")
        await buffer.close()
        buffer = await PushBuffer.open(data / "buffer", store=name)
        assert await drain(buffer) == []
        await buffer.close()

    asyncio.run(lose_the_key())
    place = ("--data-dir", str(data), "--store", STORE)
    listed = monarq("buffer", "list", "--json", "--data-dir", str(data))
    names = [file["name"] for file in json.loads(listed.stdout)["files"]]
    assert len(names) == 2
    without = monarq("buffer", "requeue", names[0], *place)
    assert (without.returncode, "the file stays" in without.stderr) == (1, True)
    for name in names:
        done = monarq("buffer", "requeue", name, *place, MONARQ_ENCRYPTION_KEYS=KEY)
        assert done.returncode == 0, done.stderr
    pushes = asyncio.run(buffered(data, cipher))
    assert sorted(push.items[0].payload for push in pushes) == [b'"1"', b'"2"']


def test_a_name_that_is_not_there_is_an_error(monarq: Run, tmp_path: Path) -> None:
    for name in ("nothing.poison", "../position", "lock"):
        done = monarq("buffer", "requeue", name, "--data-dir", str(tmp_path))
        assert done.returncode == 1
        assert "there is no" in done.stderr
