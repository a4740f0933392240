"""A store that a test can watch and disturb: every call goes to the real one, is written down,
and can be made to wait or to fail on its way there or back."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

from monarq.errors import StoreUnavailableError
from monarq.store import Store

#: What a disturbance may look at: the call's name and its first argument.
Disturb = Callable[[str, Any], BaseException | None]


class Watched:
    """What all stores of a test were asked, and what to do to the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.late_gates: dict[str, asyncio.Event] = {}
        self.disturb: Disturb | None = None
        self.disturb_after: Disturb | None = None
        self.is_down = False
        self.under_way: Counter[str] = Counter()
        self.most_under_way: Counter[str] = Counter()

    def around(self, store: Store) -> Store:
        return cast(Store, _WatchedStore(store, self))

    def opening(self) -> None:
        if self.is_down:
            raise StoreUnavailableError("the test has taken the store away")

    def forget(self) -> None:
        self.calls.clear()
        self.most_under_way.clear()

    def count(self, name: str) -> int:
        return sum(call[0] == name for call in self.calls)

    def requests(self, name: str) -> list[Sequence[Any]]:
        """What each call of this name was given first."""
        return [argument for called, argument in self.calls if called == name]

    def hold(self, name: str) -> asyncio.Event:
        """Calls of this name wait before they reach the store, until the event is set."""
        gate = self.gates[name] = asyncio.Event()
        return gate

    def hold_answers(self, name: str) -> asyncio.Event:
        """Calls of this name wait after the store has carried them out."""
        gate = self.late_gates[name] = asyncio.Event()
        return gate


class _WatchedStore:
    def __init__(self, store: Store, watched: Watched) -> None:
        self._store = store
        self._watched = watched

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found) or name == "close":
            return found
        watched = self._watched

        async def call(*args: Any, **options: Any) -> Any:
            first = args[0] if args else None
            watched.calls.append((name, first))
            watched.under_way[name] += 1
            now = watched.under_way[name]
            watched.most_under_way[name] = max(watched.most_under_way[name], now)
            try:
                if name in watched.gates:
                    await watched.gates[name].wait()
                watched.opening()
                _raise(watched.disturb and watched.disturb(name, first))
                answer = await found(*args, **options)
                if name in watched.late_gates:
                    await watched.late_gates[name].wait()
                _raise(watched.disturb_after and watched.disturb_after(name, first))
                return answer
            finally:
                watched.under_way[name] -= 1

        return call


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error
