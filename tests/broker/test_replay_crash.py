"""Replays that are killed in the middle, again and again: every push is stored once, in order."""

import asyncio
import contextlib
import random
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from monarq.broker.push_buffer import PushBuffer
from monarq.model import Push, PushItem
from monarq.store import open_store
from tests.broker.buffering import buffer_files, push_of
from tests.postgres_server import fresh_database
from tests.shared_postgres import POSTGRES_NAMES

PROJECT = Path(__file__).parents[2]
RECORDS = 400
PUSHES = 3
KILLS = 12


@pytest.fixture(params=["sqlite", POSTGRES_NAMES[-1]])
async def address(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_servers: Mapping[str, str]
) -> AsyncIterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'store.db'}"
    else:
        async with fresh_database(postgres_servers[request.param]) as dsn:
            yield dsn


@pytest.mark.slow
async def test_a_replay_that_is_killed_goes_on_and_stores_every_push_once_in_order(
    address: str, tmp_path: Path
) -> None:
    directory = tmp_path / "buffer"
    schema = f"test_{secrets.token_hex(4)}"
    buffer = await PushBuffer.open(directory, file_bytes=10_000)
    appends = [
        buffer.append(f"m{record}", [*_pushes(record), _bad_push(record)])
        for record in range(RECORDS)
    ]
    await asyncio.gather(*appends)
    await buffer.close()

    chance = random.Random(3)
    command = [sys.executable, "-m", "tests.broker.replaying_process"]
    kills = 0
    while buffer_files(directory):
        dies_after = chance.uniform(0, 0.05) if kills < KILLS else None
        await asyncio.to_thread(_replay, [*command, str(directory), address, schema], dies_after)
        kills += 1

    async with await open_store(address, schema=schema) as store:
        rows = []
        after = None
        while True:
            page = await store.list_messages("q", limit=1000, after=after)
            rows += page.rows
            after = page.next
            if after is None:
                break
    expected = [f'"{record}.{number}"' for record in range(RECORDS) for number in range(PUSHES)]
    assert [row.payload.decode() for row in rows] == expected
    aside = "".join(path.read_text() for path in directory.glob("set-aside/*"))
    assert all(f'"bad-{record}"' in aside for record in range(RECORDS))


def _pushes(record: int) -> list[Push]:
    return [push_of(f"{record}.{number}") for number in range(PUSHES)]


def _bad_push(record: int) -> Push:
    """The queue is ordered, so the store refuses it, and it must be set aside."""
    payload = f'"bad-{record}"'.encode()
    return Push([PushItem("q", payload, "p", transaction_id=f"bad-{record}", priority=1)])


def _replay(command: list[str], dies_after: float | None) -> None:
    """Replay to the end, or kill the process so many seconds after it has begun: the moment of
    the kill is what this test is about."""
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60 if dies_after is None else dies_after)
        finally:
            process.kill()
