"""No reader of exports holds up the others, and no search for rows goes on for ever."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest

from monarq.errors import OverloadedError
from monarq.server import arrow_stream
from monarq.server.export_slots import ExportSlots


class Readers:
    """Streams that hold their slot until the test lets them go on."""

    def __init__(self, slots: ExportSlots) -> None:
        self._slots = slots
        self._held: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, *names: str) -> None:
        """Each asks for a slot, for the owner that its name begins with."""
        for name in names:
            self._tasks[name] = asyncio.create_task(self._hold(name))
        await self._settle()

    async def _hold(self, name: str) -> None:
        async with self._slots.slot(name[0]):
            self._held[name] = asyncio.Event()
            try:
                await self._held[name].wait()
            finally:
                del self._held[name]

    async def end(self, *names: str) -> None:
        for name in names:
            self._held[name].set()
        await self._settle()

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    @property
    def holding(self) -> set[str]:
        return set(self._held)


async def test_one_owner_never_holds_all_slots() -> None:
    readers = Readers(ExportSlots(total=3, each=2))
    await readers.ask("a1", "a2", "a3", "a4")
    assert readers.holding == {"a1", "a2"}
    await readers.ask("b1")
    assert readers.holding == {"a1", "a2", "b1"}
    await readers.end("b1")
    assert readers.holding == {"a1", "a2"}
    await readers.end("a2")
    assert readers.holding == {"a1", "a3"}


async def test_owners_that_wait_take_turns() -> None:
    readers = Readers(ExportSlots(total=1, each=1))
    await readers.ask("a1", "a2", "a3", "b1", "b2", "c1")
    order = []
    while readers.holding:
        [name] = readers.holding
        order.append(name)
        await readers.end(name)
    assert order == ["a1", "a2", "b1", "c1", "a3", "b2"]


async def test_a_reader_that_leaves_gives_its_slot_or_its_place_up() -> None:
    readers = Readers(ExportSlots(total=1, each=1))
    await readers.ask("a1", "a2", "b1")
    await readers.cancel("a2")
    await readers.cancel("a1")
    assert readers.holding == {"b1"}
    await readers.ask("a3")
    # Granted and cancelled in the same turn of the loop.
    readers._held["b1"].set()
    await asyncio.sleep(0)
    await readers.cancel("a3")
    await readers.ask("c1")
    assert readers.holding == {"c1"}


async def test_a_search_that_finds_no_rows_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[None] = []

    async def nothing() -> AsyncGenerator[Any]:
        try:
            await asyncio.Event().wait()
            yield None
        finally:
            closed.append(None)

    monkeypatch.setattr(arrow_stream, "PIECE_SECONDS", 0.05)
    with pytest.raises(OverloadedError, match="ask for fewer"):
        await arrow_stream.arrow_stream(
            pa.schema([]), nothing(), lambda read: pa.record_batch([], []), nullcontext
        )
    assert closed
