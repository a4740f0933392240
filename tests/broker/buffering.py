"""Pushes to put into a push buffer, and ways to look at what is in one."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from monarq.broker.buffer_records import Entry
from monarq.broker.push_buffer import PushBuffer
from monarq.model import Push, PushItem


def push_of(text: str, *, queue: str = "q", partition: str = "p", size: int = 0) -> Push:
    """One item, whose transaction id and payload are the text; of at least `size` bytes."""
    payload = f'"{text}"'.encode().ljust(size)
    return Push([PushItem(queue, payload, partition, transaction_id=text)])


def text_of(push: Push) -> str:
    return push.items[0].payload.decode().strip(' "')


async def fill(buffer: PushBuffer, *texts: str) -> None:
    """One record each, in order."""
    for text in texts:
        await buffer.append(f"mark-{text}", [push_of(text)])


async def drain(buffer: PushBuffer) -> list[Entry]:
    """Everything that is in it, in order; it is empty then."""
    entries: list[Entry] = []
    while not buffer.is_empty:
        records = await buffer.peek()
        if records:
            entries += [record.entry for record in records]
            await buffer.done(records)
    return entries


def texts(entries: list[Entry]) -> list[str]:
    return [text_of(push) for entry in entries for push in entry.pushes]


def buffer_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("[0-9]*/*.buffer"))


async def until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Until something is so that tells nobody."""
    async with asyncio.timeout(seconds):
        while True:
            if condition():
                return
            await asyncio.sleep(0.002)
