"""The store as everybody else sees it: the same calls, and the loop learns what they did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from monarq.errors import StoreUnavailableError
from monarq.model import ConfiguredQueue
from monarq.operations.calls import StoreCalls
from monarq.operations.operation import Operation
from monarq.store.contract import Store

R = TypeVar("R")

Done = Callable[[tuple[Any, ...], dict[str, Any], Any], None]


class WatchedStore(StoreCalls):
    """Passes every call of the contract on. After those that make something available it tells
    `stirred` which queue (None: any), and `changed` which queue is another now."""

    def __init__(
        self,
        get: Callable[[], Store],
        *,
        stirred: Callable[[str | None], None],
        changed: Callable[[str, ConfiguredQueue | None], None],
        on_unavailable: Callable[[StoreUnavailableError], None],
    ) -> None:
        self._get = get
        self._stirred = stirred
        self._changed = changed
        self._on_unavailable = on_unavailable
        self._after: dict[str, Done] = {
            "subscribe": self._anything,
            "skip": self._about_place,
            "delete_message": self._anything,
            "push": self._anything,
            "restore": self._anything,
            "ack": self._anything,
            "ack_and_pop": self._anything,
            "transaction": self._anything,
            "lifecycle": self._anything,
        }

    async def call(self, request: Operation[R], *, commands: bool = True) -> R:
        try:
            result = await self._get().call(request, commands=commands)
        except StoreUnavailableError as error:
            self._on_unavailable(error)
            raise
        for name, queue in request.changes(result).items():
            self._changed(name, queue)
        for woken in request.wakes(result):
            self._stirred(woken)
        return result

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        call = getattr(self._get(), name)
        if not callable(call):
            return call
        after = self._after.get(name)

        async def watched(*args: Any, **options: Any) -> Any:
            try:
                answer = await call(*args, **options)
            except StoreUnavailableError as error:
                self._on_unavailable(error)
                raise
            if after is not None:
                after(args, options, answer)
            return answer

        return watched

    async def close(self) -> None:
        """The broker closes it."""

    def _about_place(self, args: Any, options: Any, answer: Any) -> None:
        self._stirred(_first(args, options, "queue"))

    def _anything(self, args: Any, options: Any, answer: Any) -> None:
        self._stirred(None)


def _first(args: Any, options: Any, name: str) -> Any:
    return args[0] if args else options[name]
