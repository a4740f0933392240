"""What every store promises.

The calls of the hot path take many requests and answer each in its place: an answer, or the
error that belongs to this request alone. A call that fails as a whole raises
`StoreUnavailableError`: all of it took effect or nothing did, and where the connection was lost
on the way nobody knows which, so whoever repeats a push gives it a mark, or transaction ids.
Once a call has answered, its effect is durable. Requests of one call that are about the same
thing (a partition in a push, a partition and group or an item in an ack, a queue, group and
partition in a pop) are carried out in their order, others in any.

All calls validate their arguments before they touch the store: the hot path in
`validation.requests` and `validation.pushes`, all others by the table in `validation.calls`. An
error of the database that Monarq does not know is logged and raised as `InternalError`. The rules
that the calls keep are written down in `docs/model.md`; `tests/store` holds every store to them.
"""

from __future__ import annotations

import abc
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from msgspec import structs

from monarq.model import LifecycleReport, Page
from monarq.operations.calls import StoreCalls
from monarq.operations.messages import ListMessages
from monarq.operations.operation import Operation, Paged
from monarq.operations.validation import validated
from monarq.store.collecting import collect
from monarq.store.contract.dead_letters import KeepingDeadLetters
from monarq.store.contract.delivering import Delivering, Outcome
from monarq.store.contract.exporting import Exporting
from monarq.store.contract.figures import Figures
from monarq.store.contract.groups import KeepingGroups
from monarq.store.contract.inspecting import Inspecting
from monarq.store.contract.queues import KeepingQueues
from monarq.store.contract.settings import KeepingSettings
from monarq.store.contract.watching import Watching
from monarq.store.rekeying import RekeyStep

__all__ = ["Outcome", "Store"]

R = TypeVar("R")
Row = TypeVar("Row")


class Store(
    Delivering,
    KeepingQueues,
    KeepingGroups,
    KeepingDeadLetters,
    Inspecting,
    Figures,
    KeepingSettings,
    Exporting,
    Watching,
    StoreCalls,
):
    """See the module. Made by `open_store`; use it with `async with`, or `close` it."""

    concurrent: ClassVar[bool] = True
    """Whether calls made at the same time are carried out at the same time, or in turn."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def call(self, request: Operation[R], *, commands: bool = True) -> R:
        """Validate an operation and carry it out.

        Without `commands` the caller may not work on shell commands, and gets `ForbiddenError`
        for what needs that right.
        """
        request = validated(request)
        if isinstance(request, ListMessages) and request.offset and not request.has_filter:
            request = await self.pass_messages(request)  # type: ignore[assignment]
        if isinstance(request, Paged):
            return await self._page(request, commands)  # type: ignore[return-value]
        result: R = await self.carry_out(request, commands=commands)
        return result

    async def _page(self, request: Paged[Row], commands: bool) -> Page[Row]:
        async def fetch(limit: int, after: str | None) -> Page[Row]:
            part = structs.replace(request, limit=limit, offset=0, after=after)
            page: Page[Row] = await self.carry_out(part, commands=commands)
            return page

        size = request.row_bytes if request.bounded else None
        return await collect(fetch, request, keep=request.keep, size=size)

    @abc.abstractmethod
    async def carry_out(self, request: Operation[Any], *, commands: bool) -> Any:
        """Run the handler of an operation that was validated."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Give back all resources. Calls under way are finished first; twice is harmless."""

    @abc.abstractmethod
    async def ping(self) -> None:
        """Return if the store can serve, raise `StoreUnavailableError` otherwise."""

    @abc.abstractmethod
    async def rekey_step(self, *, limit: int = 100, after: str | None = None) -> RekeyStep:
        """Look at the next rows that may hold sealed values, and seal anew, with the first key and
        for their place, those values that are not. `EncryptionKeyError` without a key."""

    @abc.abstractmethod
    async def changed(self) -> bool:
        """Whether anybody may have written since this was last asked, or since it was opened.

        False: no other process has, and what a pop would find is as it was, but for what time
        does. True may be because of one's own writes, or of others that concern nobody here.
        Costs a look at one number, never a table.
        """

    @abc.abstractmethod
    async def lifecycle(self, *, limit: int = 1000) -> LifecycleReport:
        """One step: expire leases, promote scheduled items, bury the dead, evict, retain,
        remove empty partitions, roll up metrics; at most about `limit` rows of each.

        Safe to run from many processes at once: what one works on, the others pass over.
        """
