"""The push buffer: files that keep pushes while the store cannot take them.

`append` is durable when it returns: appends that come while the disk is busy share the next
fsync, one at a time, in a thread of the buffer's own. `peek` and `done` give the records back in
order. Several processes share one directory: each has a numbered subdirectory (see `journal`),
and adopts those that dead processes left behind.

Knows nothing of the store, and never decides where a push goes: see `failover`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from monarq.broker.buffer_files import BufferFiles, BufferState, Record, Refusal
from monarq.broker.buffer_records import Entry
from monarq.clock import Clock, SystemClock
from monarq.crypto import Cipher
from monarq.errors import BufferWriteError, OverloadedError
from monarq.model import Push

T = TypeVar("T")

GROUP_BYTES = 32 << 20
"""About the most that one fsync covers, so that nobody waits for much more than that."""
_ITEM_BYTES = 200
"""What an item takes besides its payload, roughly."""


@dataclass(slots=True)
class _Append:
    entry: Entry
    size: int
    written: asyncio.Future[None]


class PushBuffer:
    """See the module. Made by `open`."""

    def __init__(
        self,
        files: BufferFiles,
        thread: ThreadPoolExecutor,
        *,
        clock: Clock,
        waiting_max_bytes: int,
    ) -> None:
        self._files = files
        self._thread = thread
        self._clock = clock
        self._waiting_max_bytes = waiting_max_bytes
        self._waiting: list[_Append] = []
        self._waiting_bytes = 0
        self._flush: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    async def open(
        cls,
        directory: Path,
        *,
        store: str = "",
        cipher: Cipher | None = None,
        file_bytes: int = 64 << 20,
        max_bytes: int = 10 << 30,
        waiting_max_bytes: int = 128 << 20,
        clock: Clock | None = None,
    ) -> PushBuffer:
        """`store` names the one that the pushes are for, without its password: it is written
        down, and what is for another store is left alone.

        Raises `BufferWriteError` if the directory cannot be used.
        """
        clock = clock or SystemClock()
        thread = ThreadPoolExecutor(1, thread_name_prefix="monarq-buffer")
        try:
            files = await asyncio.get_running_loop().run_in_executor(
                thread,
                lambda: BufferFiles(
                    directory,
                    store=store,
                    cipher=cipher,
                    file_bytes=file_bytes,
                    max_bytes=max_bytes,
                    clock=clock,
                ),
            )
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(files, thread, clock=clock, waiting_max_bytes=waiting_max_bytes)

    @property
    def directory(self) -> Path:
        return self._files.directory

    @property
    def state(self) -> BufferState:
        return self._files.state

    @property
    def is_empty(self) -> bool:
        """Whether everything that was ever appended has been replayed or set aside."""
        return self._flush is None and self._files.state.bytes == 0

    @property
    def unread_bytes(self) -> int:
        return self._files.state.bytes + self._waiting_bytes

    async def append(self, mark: str, pushes: Sequence[Push], *, attempted: bool = False) -> None:
        """Durable when it returns; refused with `BufferWriteError` or `OverloadedError`.

        `attempted`: the store was asked with this mark and these very pushes, and nobody knows
        what became of it. A caller that is cancelled meanwhile leaves its record behind.
        """
        size = sum(_ITEM_BYTES + len(item.payload) for push in pushes for item in push.items)
        if self._closed:
            raise BufferWriteError("the push buffer is closed")
        if self._waiting and self._waiting_bytes + size > self._waiting_max_bytes:
            raise OverloadedError("too many pushes wait for the buffer file; try again in a moment")
        loop = asyncio.get_running_loop()
        entry = Entry(mark, self._clock.now(), list(pushes), attempted)
        append = _Append(entry, size, loop.create_future())
        self._waiting.append(append)
        self._waiting_bytes += size
        if self._flush is None:
            self._flush = loop.create_task(self._flush_waiting(), name="monarq-buffer-flush")
        await append.written

    async def _flush_waiting(self) -> None:
        try:
            while self._waiting:
                await self._flush_group(self._next_group())
        finally:
            self._flush = None

    async def _flush_group(self, group: list[_Append]) -> None:
        entries = [append.entry for append in group]
        try:
            answers = await self._in_thread(lambda: self._files.append(entries))
            for append, answer in zip(group, answers, strict=True):
                if append.written.done():
                    continue
                if answer is None:
                    append.written.set_result(None)
                else:
                    append.written.set_exception(answer)
        finally:
            # Whatever happened, nobody is left waiting for an answer that will not come.
            for append in group:
                if not append.written.done():
                    append.written.set_exception(BufferWriteError("the push buffer has failed"))

    def _next_group(self) -> list[_Append]:
        count = size = 0
        for append in self._waiting:
            size += append.size
            if count and size > GROUP_BYTES:
                break
            count += 1
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        self._waiting_bytes -= sum(append.size for append in group)
        return group

    async def peek(self, max_messages: int = 1000, max_bytes: int = 8 << 20) -> list[Record]:
        """The next records to replay, in order; see `BufferFiles.peek`."""
        return await self._in_thread(lambda: self._files.peek(max_messages, max_bytes))

    async def done(self, records: Sequence[Record]) -> None:
        """What `peek` gave is in the store, or set aside."""
        await self._in_thread(lambda: self._files.done(records))

    async def set_aside(self, refused: Sequence[Refusal]) -> None:
        """Keep pushes that cannot be replayed where a person finds them."""
        await self._in_thread(lambda: self._files.set_aside(refused))

    async def adopt(self) -> None:
        """Take over what processes that are gone have left."""
        await self._in_thread(self._files.adopt)

    async def close(self) -> None:
        """Finish the appends under way and let go of the directory; twice is harmless."""
        if self._closed:
            return
        self._closed = True
        if self._flush is not None:
            await asyncio.wait([self._flush])
        await self._in_thread(self._files.close)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
