"""Brings the records of the push buffer to the store: in order, and each push once.

Once, because every item in the buffer has a transaction id, and every call a mark: what reached
the store before is `duplicate` or `AlreadyPushedError`, and that is success. A push that the store
refuses is set aside with the reason, and lets the next ones through; an error that nobody expected
makes each push of the call go alone, a few times, before the guilty one is set aside.

It stops with `StoreUnavailableError` when the store cannot serve, and may be run again at any time.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from monarq.broker.buffer_files import Record
from monarq.broker.push_buffer import PushBuffer
from monarq.errors import AlreadyPushedError, MonarqError, StoreUnavailableError
from monarq.model import Push, Pushed
from monarq.store.contract import Outcome
from monarq.store.validation import check_push

log = logging.getLogger("monarq.buffer")

LONE_ATTEMPTS = 3

Place = tuple[Record, int]
"""A push: its record, and which one of that record's it is."""


class StorePush(Protocol):
    """The store's `push`; the broker's wakes who waits for what was pushed."""

    async def __call__(
        self, requests: Sequence[Push], *, mark: str | None
    ) -> list[Outcome[list[Pushed]]]: ...


class Replayer:
    def __init__(
        self,
        buffer: PushBuffer,
        push: StorePush,
        *,
        batch_max: int,
        batch_max_bytes: int,
        pause: Callable[[], Awaitable[None]],
        progress: Callable[[int], None] = lambda size: None,
    ) -> None:
        """`pause` is waited for between attempts at a push that fails for no known reason;
        `progress` is told how many bytes of the buffer are done."""
        self._buffer = buffer
        self._push = push
        self._batch_max = batch_max
        self._batch_max_bytes = batch_max_bytes
        self._pause = pause
        self._progress = progress
        self.replayed = 0
        """Pushes that are in the store now."""
        self.set_aside = 0

    async def step(self) -> None:
        """Replay the next few records. `StoreUnavailableError`: the store is down again;
        `BufferWriteError`: something must be set aside, and there is no room for it."""
        records = await self._buffer.peek(self._batch_max, self._batch_max_bytes)
        if records:
            await self._replay(records)

    async def _replay(self, records: list[Record]) -> None:
        places = [
            (record, index) for record in records for index in range(len(record.entry.pushes))
        ]
        try:
            await self._replay_together(places, _joint_mark(records))
        except AlreadyPushedError as error:
            # The store has the call, and may have refused some of its pushes: that answer was
            # lost, and they get another.
            refused = set(error.refused)
            again = [
                place
                for index, place in enumerate(places)
                if index in refused or _is_malformed(*place)
            ]
            self.replayed += len(places) - len(again)
            if again:
                await self._replay_together(again, None)
        await self._buffer.done(records)
        self._progress(records[-1].end - records[0].start)

    async def _replay_together(self, places: list[Place], mark: str | None) -> None:
        pushes = [record.entry.pushes[index] for record, index in places]
        try:
            answers = await self._push(pushes, mark=mark)
        except (AlreadyPushedError, StoreUnavailableError):
            raise
        except Exception:
            log.exception("a call of the replay failed; its %d pushes go alone", len(pushes))
            for place, push in zip(places, pushes, strict=True):
                await self._replay_alone(*place, push)
        else:
            await self._settle(places, answers)

    async def _replay_alone(self, record: Record, index: int, push: Push) -> None:
        mark = f"{record.entry.mark[:48]}.{index}"
        for attempt in range(1, LONE_ATTEMPTS + 1):
            try:
                [answer] = await self._push([push], mark=mark)
            except AlreadyPushedError:
                self.replayed += 1
                return
            except StoreUnavailableError:
                raise
            except Exception as error:
                if attempt < LONE_ATTEMPTS:
                    await self._pause()
                    continue
                log.exception("a push fails alone")
                answer = UnexpectedPushError(f"{type(error).__name__}: {error}")
            await self._settle([(record, index)], [answer])
            return

    async def _settle(self, places: list[Place], answers: Sequence[Outcome[list[Pushed]]]) -> None:
        refused = [
            (*place, answer)
            for place, answer in zip(places, answers, strict=True)
            if isinstance(answer, MonarqError)
        ]
        if refused:
            await self._buffer.set_aside(refused)
            self.set_aside += len(refused)
        self.replayed += len(places) - len(refused)


class UnexpectedPushError(MonarqError):
    """The store failed on this push for a reason that it has no word for."""

    code = "unexpected"


def _is_malformed(record: Record, index: int) -> bool:
    """Whether the store refuses it whenever it is asked."""
    try:
        check_push(record.entry.pushes[index])
    except MonarqError:
        return True
    return False


def _joint_mark(records: list[Record]) -> str:
    """One record keeps its own mark: the store may know it. Several get one that says which
    they are; if a crash makes the next attempt join others, their transaction ids tell."""
    if len(records) == 1:
        return records[0].entry.mark
    marks = "\n".join(record.entry.mark for record in records)
    return hashlib.sha256(marks.encode()).hexdigest()
