"""Background tasks of a worker that run as long as it does: renewals, heartbeats, schedules."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from monarq.client.handlers import raise_if_cancelled

log = logging.getLogger("monarq.worker")

PAUSE_SECONDS = 1.0


async def keep_running(
    name: str, run: Callable[[], Awaitable[None]], *, pause_seconds: float = PAUSE_SECONDS
) -> None:
    """Run `run` until this task is cancelled. If it fails or returns, log that with the traceback
    and start it again after a pause, so that no error ends it for good."""
    while True:
        try:
            await run()
        except asyncio.CancelledError:
            raise_if_cancelled()
            log.exception("%s was cancelled from within; it starts again", name)
        except Exception:
            log.exception("%s failed unexpectedly; it starts again", name)
        else:
            log.error("%s ended unexpectedly; it starts again", name)
        await asyncio.sleep(pause_seconds)
