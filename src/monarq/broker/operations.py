"""Handlers of the operations that the broker composes of several calls of the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from monarq.operations.handlers import Handlers
from monarq.operations.operation import Operation
from monarq.store.contract import Store

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Composition:
    """What a composed operation works with."""

    store: Store
    now: int
    """Microseconds since 1970."""
    commands: bool
    """Whether the caller may work on shell commands."""

    async def call(self, request: Operation[R]) -> R:
        """Carry out an operation of the store with the rights of the caller."""
        return await self.store.call(request, commands=self.commands)


handles: Handlers[Composition] = Handlers()
