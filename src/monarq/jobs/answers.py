"""Answers jobs that are done: many at once, and again while the store is away."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from monarq.client.consuming import PASSING
from monarq.client.link import Link
from monarq.errors import LeaseError, MonarqError
from monarq.model import Ack, Acked
from monarq.store.contract import Outcome

log = logging.getLogger("monarq.worker")

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
#: Answers for which it is worth to have a second call under way.
_MANY = 500

OnAnswered = Callable[[], None]


class Answers:
    """What is to be answered in one turn of the loop goes in one call; and what comes while one is
    under way goes when that is back, or when it is enough for another.

    The work is done, so a store that is away for a while must not lose it: the call is repeated
    for `patience_seconds`. Past its lease an answer is refused, and somebody else does the job.
    """

    def __init__(self, link: Link, *, patience_seconds: float) -> None:
        self._link = link
        self._patience_seconds = patience_seconds
        self._waiting: list[Ack] = []
        self._callbacks: list[OnAnswered] = []
        self._calls: set[asyncio.Task[None]] = set()

    def add(self, ack: Ack, on_answered: OnAnswered) -> None:
        """`on_answered` is called when it is answered, or cannot be."""
        if not self._waiting and not self._calls:
            asyncio.get_running_loop().call_soon(self._send)
        self._waiting.append(ack)
        self._callbacks.append(on_answered)
        if len(self._waiting) >= _MANY:
            self._send()

    async def done(self) -> None:
        """Wait until nothing is left to be answered."""
        while self._waiting or self._calls:
            self._send()
            await asyncio.wait(self._calls)

    def close(self) -> None:
        """Give up what is not answered yet."""
        for call in self._calls:
            call.cancel()

    def _send(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        callbacks, self._callbacks = self._callbacks, []
        call = asyncio.get_running_loop().create_task(self._call(waiting, callbacks))
        self._calls.add(call)
        call.add_done_callback(self._came_back)

    def _came_back(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            self._send()

    async def _call(self, acks: list[Ack], callbacks: list[OnAnswered]) -> None:
        try:
            outcomes = await self._persistently(acks)
            for ack, outcome in zip(acks, outcomes, strict=True):
                if not isinstance(outcome, Acked):
                    _note(ack, outcome)
        except MonarqError as error:
            log.error("the results of %d jobs could not be kept: %s", len(acks), error)
        except Exception:
            log.exception("the results of %d jobs could not be kept", len(acks))
        finally:
            for callback in callbacks:
                callback()

    async def _persistently(self, acks: list[Ack]) -> list[Outcome[Acked]]:
        pause = _FIRST_PAUSE_SECONDS
        deadline = asyncio.get_running_loop().time() + self._patience_seconds
        while True:
            try:
                return await self._link.ack(acks)
            except PASSING:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _note(ack: Ack, error: MonarqError) -> None:
    if isinstance(error, LeaseError):
        log.warning("the result of job %s came too late: %s", ack.transaction_id, error)
    else:
        log.error("the result of job %s was refused: %s", ack.transaction_id, error)
