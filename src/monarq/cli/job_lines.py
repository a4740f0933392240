"""A line in a worker's log for each job that begins, and one when it has ended."""

from __future__ import annotations

import logging
import time
from typing import Any

from monarq.cli.formats import duration
from monarq.cli.tables import printable
from monarq.jobs.presence import Presence
from monarq.model import Message

log = logging.getLogger("monarq.worker")

_LONGEST = 200
_ENDS = {True: "completed", False: "failed", None: "was given back"}


class ToldPresence(Presence):
    """Knows when jobs begin and end anyway; this one says so."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._begun: dict[str, float] = {}

    def began(self, message: Message, what: str) -> None:
        super().began(message, what)
        self._begun[message.id] = time.monotonic()
        again = f", attempt {message.attempts}" if message.attempts > 1 else ""
        what = printable(what)[:_LONGEST]
        log.info("%s began on %s%s: %s", message.transaction_id, message.queue, again, what)

    def ended(self, message: Message, *, succeeded: bool | None) -> None:
        super().ended(message, succeeded=succeeded)
        at = self._begun.pop(message.id, None)
        if at is not None:
            level = logging.WARNING if succeeded is False else logging.INFO
            log.log(level, "%s %s after %s", message.transaction_id, _ENDS[succeeded], _since(at))


def _since(at: float) -> str:
    return duration(time.monotonic() - at)
