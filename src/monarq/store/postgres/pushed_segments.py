"""What was pushed a moment ago, so that a pop need not have it sent back.

A segment is named by its partition, its first seq and its time. The procedures compare all three
with what is stored, and send the payloads wherever one differs or a message was deleted; so what
is here may be forgotten, but cannot be wrong.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

MOST_SEGMENTS = 64
"""Each is named in every pop that could get it."""
MOST_BYTES = 8 << 20
WORTH_KEEPING = 64 << 10
"""Smaller ones are sent in a moment."""


class _Pushed(NamedTuple):
    queue_id: int
    data: bytes


def segment_name(partition_id: int, first_seq: int, created_at: int) -> str:
    """As pop.sql makes it."""
    return f"{partition_id}-{first_seq}-{created_at}"


class PushedSegments:
    """Payloads as they are stored, of segments that were committed and not popped since; those
    that were pushed longest ago are forgotten first."""

    def __init__(self) -> None:
        self._segments: OrderedDict[str, _Pushed] = OrderedDict()
        self._bytes = 0

    def learn(self, queue_id: int, name: str, data: bytes) -> None:
        if len(data) < WORTH_KEEPING:
            return
        self.forget(name)
        self._segments[name] = _Pushed(queue_id, data)
        self._bytes += len(data)
        while self._bytes > MOST_BYTES or len(self._segments) > MOST_SEGMENTS:
            _, oldest = self._segments.popitem(last=False)
            self._bytes -= len(oldest.data)

    def of_queue(self, queue_id: int) -> Mapping[str, bytes]:
        """A copy: what it names must be there when the answer comes."""
        return {
            name: pushed.data
            for name, pushed in self._segments.items()
            if pushed.queue_id == queue_id
        }

    def forget(self, name: str) -> None:
        """It was popped. Another group may want it, but most queues have one."""
        pushed = self._segments.pop(name, None)
        if pushed is not None:
            self._bytes -= len(pushed.data)
