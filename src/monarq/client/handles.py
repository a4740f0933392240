"""A job that was enqueued: how it is, what came of it, and taking it back."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from monarq.client.link import Link
from monarq.errors import MonarqError
from monarq.job import AttemptResult, JobState, job_state, read_result
from monarq.model import Attempt, ItemDetail, ItemState
from monarq.store.validation import check_seconds

_FIRST_LOOK_SECONDS = 0.02
_LONGEST_LOOK_SECONDS = 1.0
_FINISHED = (ItemState.DONE, ItemState.DEAD, ItemState.CANCELLED)


class JobFailedError(MonarqError):
    """A job ended without a result: it is dead, or was cancelled."""

    code = "job_failed"

    def __init__(self, job_id: str, state: JobState, error: str | None) -> None:
        super().__init__(f"job {job_id} is {state}: {error or 'no error was given'}")
        self.state = state


class AsyncJob(Struct, eq=False, gc=False):
    """By its item's id. Asking costs a call to the broker each time."""

    _link: Link
    id: str
    is_new: bool = True
    """Whether enqueueing stored it; not, if it was there already."""

    async def item(self) -> ItemDetail:
        return await self._link.admin.get_item(self.id)

    async def state(self) -> JobState:
        return job_state(await self.item())

    async def attempts(self) -> list[Attempt]:
        """Those that have ended, oldest first."""
        return (await self.item()).history

    async def outcome(self, timeout: float | None = None) -> AttemptResult:
        """Wait until it is finished; what its last attempt left. `JobFailedError` if it died or
        was cancelled, `TimeoutError` if it takes longer."""
        if timeout is not None:
            check_seconds(timeout, "timeout", low=-1e9, high=1e9)
        async with asyncio.timeout(timeout):
            pause = _FIRST_LOOK_SECONDS
            while (item := await self.item()).state not in _FINISHED:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_LOOK_SECONDS)
        if item.state is not ItemState.DONE:
            raise JobFailedError(self.id, job_state(item), item.error)
        result = read_result(item.history[-1].result) if item.history else None
        return result or AttemptResult(seconds=0.0)

    async def result(self, timeout: float | None = None) -> Any:
        """Wait for the value that a task returned."""
        return (await self.outcome(timeout)).value

    async def cancel(self) -> None:
        """A running command is ended within seconds; a running task goes on, for nothing."""
        await self._link.admin.cancel_item(self.id)

    async def retry(self) -> None:
        """Start over, with its attempts forgotten."""
        await self._link.admin.retry_item(self.id)

    def __repr__(self) -> str:
        return f"<job {self.id}>"
