"""The store as everybody else sees it: the same calls, and the loop learns what they did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from monarq.errors import StoreUnavailableError
from monarq.model import ConfiguredQueue, DeadLetterFilter, Queue
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
        learned: Callable[[ConfiguredQueue], None],
        forgotten: Callable[[str], None],
        on_unavailable: Callable[[StoreUnavailableError], None],
    ) -> None:
        self._get = get
        self._stirred = stirred
        self._learned = learned
        self._forgotten = forgotten
        self._on_unavailable = on_unavailable
        self._after: dict[str, Done] = {
            "set_paused": self._queue_changed,
            "delete_queue": self._queue_gone,
            "clear_queue": self._about_queue,
            "subscribe": self._anything,
            "skip": self._about_place,
            "redrive": self._redriven,
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
        if isinstance(result, ConfiguredQueue):
            self._learned(result)
        for queue in request.wakes(result):
            self._stirred(queue)
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

    def _queue_changed(self, args: Any, options: Any, answer: Queue) -> None:
        self._learned(answer)
        self._stirred(answer.name)

    def _queue_gone(self, args: Any, options: Any, answer: Any) -> None:
        self._forgotten(_first(args, options, "name"))

    def _about_queue(self, args: Any, options: Any, answer: Any) -> None:
        self._stirred(_first(args, options, "name"))

    def _about_place(self, args: Any, options: Any, answer: Any) -> None:
        self._stirred(_first(args, options, "queue"))

    def _redriven(self, args: Any, options: Any, answer: Any) -> None:
        which: DeadLetterFilter = _first(args, options, "which")
        self._stirred(options.get("to") or which.queue)

    def _anything(self, args: Any, options: Any, answer: Any) -> None:
        self._stirred(None)


def _first(args: Any, options: Any, name: str) -> Any:
    return args[0] if args else options[name]
