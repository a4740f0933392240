"""Pushes that are answered before they are durable: kept in memory for a moment, by the caller's
own wish, and pushed together."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import structs

from monarq.broker.alarms import Alarm, Alarms
from monarq.broker.measures import Measures
from monarq.errors import OverloadedError
from monarq.model import Push, Pushed, PushItem, PushStatus
from monarq.store.validation import check_push

log = logging.getLogger(__name__)

MAX_WAIT_MS = 60_000.0


class _Gathering:
    __slots__ = ("alarm", "count", "pushes")

    def __init__(self) -> None:
        self.pushes: list[Push] = []
        self.count = 0
        self.alarm: Alarm | None = None


class Deferred:
    def __init__(
        self,
        alarms: Alarms,
        submit: Callable[[Push], asyncio.Future[list[Pushed]]],
        measures: Measures,
        *,
        bytes_max: int,
    ) -> None:
        self._alarms = alarms
        self._submit = submit
        self._measures = measures
        self._bytes_max = bytes_max
        self._bytes = 0
        self._gathering: dict[tuple[float, int], _Gathering] = {}

    def push(self, push: Push, wait_ms: float, max_count: int) -> list[Pushed]:
        """Refuses what is malformed now: nobody could be told later."""
        check_push(push)
        size = _size(push.items)
        if self._bytes + size > self._bytes_max:
            self._measures.overloaded += 1
            raise OverloadedError("too many pushes wait in memory: try again in a moment")
        wait_ms = min(wait_ms, MAX_WAIT_MS)
        key = (wait_ms, max_count)
        gathering = self._gathering.get(key)
        if gathering is None:
            gathering = self._gathering[key] = _Gathering()
            gathering.alarm = self._alarms.after(wait_ms / 1_000, lambda: self._flush(key))
        items = [_named(item) for item in push.items]
        gathering.pushes.append(Push(items, push.producer, push.commands))
        gathering.count += len(items)
        self._bytes += size
        if gathering.count >= max_count:
            self._flush(key)
        return [
            Pushed(PushStatus.BUFFERED, item.queue, 0, 0, item.transaction_id or "", item.trace_id)
            for item in items
        ]

    def flush(self) -> None:
        for key in list(self._gathering):
            self._flush(key)

    def _flush(self, key: tuple[float, int]) -> None:
        gathering = self._gathering.pop(key, None)
        if gathering is None:
            return
        self._alarms.cancel(gathering.alarm)
        for push in gathering.pushes:
            self._submit(push).add_done_callback(partial(self._done, push))

    def _done(self, push: Push, future: asyncio.Future[Any]) -> None:
        self._bytes -= _size(push.items)
        error = future.exception() if not future.cancelled() else None
        if error is not None:
            self._measures.deferred_lost += len(push.items)
            log.error("a push that was answered before it was durable is lost: %s", error)


def _size(items: Sequence[PushItem]) -> int:
    return sum(len(item.payload) for item in items)


def _named(item: PushItem) -> PushItem:
    if item.transaction_id is not None:
        return item
    return structs.replace(item, transaction_id=str(uuid.uuid4()))
