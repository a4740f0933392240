"""The buffer files, as answers show them."""

from __future__ import annotations

from monarq.health import BufferHealth
from monarq.times import iso_or_none
from monarq.wire.status import BufferAnswer


def buffer_answer(buffer: BufferHealth | None) -> BufferAnswer:
    if buffer is None:
        return BufferAnswer(
            enabled=False,
            healthy=True,
            route="direct",
            bytes=0,
            records=0,
            files=0,
            oldest=None,
            set_aside=[],
        )
    return BufferAnswer(
        enabled=True,
        healthy=not (buffer.set_aside or buffer.others or buffer.failing),
        route=buffer.route,
        bytes=buffer.bytes,
        records=buffer.records,
        files=buffer.files,
        oldest=iso_or_none(buffer.oldest),
        set_aside=buffer.set_aside,
        others=buffer.others,
        failing=buffer.failing,
    )
