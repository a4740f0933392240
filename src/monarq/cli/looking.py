"""Looks into a store without a broker: what commands need that only read.

A broker would be imported, started and stopped for nothing, and a shell user waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from monarq.clock import SystemClock
from monarq.operations.calls import SyncCalls
from monarq.operations.operation import Operation
from monarq.store.contract import Store

R = TypeVar("R")


class Looker(Protocol):
    """What a client and an open store have in common: the operations, without `await`."""

    @property
    def admin(self) -> SyncCalls: ...


class _Admin(SyncCalls):
    def __init__(self, store: Store, runner: asyncio.Runner) -> None:
        self._store = store
        self._runner = runner

    def call(self, request: Operation[R]) -> R:
        from monarq.broker.composed import carry_out

        return self._runner.run(carry_out(self._store, request, now=SystemClock().now()))


class _StoreLook:
    def __init__(self, admin: _Admin) -> None:
        self.admin = admin


@contextmanager
def look_into(address: str, *, keys: Sequence[bytes], schema: str) -> Iterator[Looker]:
    from monarq.store import open_store

    with asyncio.Runner() as runner:
        store = runner.run(open_store(address, keys=keys, schema=schema))
        try:
            yield _StoreLook(_Admin(store, runner))
        finally:
            runner.run(store.close())
