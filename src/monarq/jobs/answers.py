"""Answers jobs that are done: many at once, and again while the store is away."""

from __future__ import annotations

import asyncio
import logging
import random

from monarq.client.consuming import PASSING
from monarq.client.link import Link
from monarq.errors import LeaseError, MonarqError
from monarq.model import Ack, Acked
from monarq.store.contract import Outcome

log = logging.getLogger("monarq.worker")

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0


class Answers:
    """What is to be answered in one turn of the loop goes in one call.

    The work is done, so a store that is away for a while must not lose it: the call is repeated
    for `patience_seconds`. Past its lease an answer is refused, and somebody else does the job.
    """

    def __init__(self, link: Link, *, patience_seconds: float) -> None:
        self._link = link
        self._patience_seconds = patience_seconds
        self._waiting: list[tuple[Ack, asyncio.Future[None]]] = []
        self._calls: set[asyncio.Task[None]] = set()

    async def answer(self, ack: Ack) -> None:
        """Returns when it is answered, or cannot be."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._send)
        future = loop.create_future()
        self._waiting.append((ack, future))
        await future

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        call = asyncio.get_running_loop().create_task(self._call(waiting))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, waiting: list[tuple[Ack, asyncio.Future[None]]]) -> None:
        try:
            outcomes = await self._persistently([ack for ack, _ in waiting])
            for (ack, _), outcome in zip(waiting, outcomes, strict=True):
                _note(ack, outcome)
        except MonarqError as error:
            log.error("the results of %d jobs could not be kept: %s", len(waiting), error)
        finally:
            for _, future in waiting:
                if not future.done():
                    future.set_result(None)

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


def _note(ack: Ack, outcome: Outcome[Acked]) -> None:
    if isinstance(outcome, LeaseError):
        log.warning("the result of job %s came too late: %s", ack.transaction_id, outcome)
    elif isinstance(outcome, MonarqError):
        log.error("the result of job %s was refused: %s", ack.transaction_id, outcome)
