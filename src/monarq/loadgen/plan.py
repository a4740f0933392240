"""What a load is made of."""

from __future__ import annotations

import secrets
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct, field


class Mode(StrEnum):
    PUSH = "push"
    """Pushes alone."""
    POP = "pop"
    """Pops and acks of a backlog that is pushed first."""
    END_TO_END = "end-to-end"
    """Pushes, and consumers that wait for them."""


def _fresh_name() -> str:
    return f"bench-{secrets.token_hex(4)}"


class Plan(Struct, frozen=True, kw_only=True, rename="camel"):
    mode: Mode
    url: str
    token: str | None = None
    queue: str = field(default_factory=_fresh_name)
    size: Annotated[int, Meta(ge=32, le=16 << 20)] = 256
    """Bytes of a payload."""
    batch: Annotated[int, Meta(ge=1, le=10_000)] = 1
    """Messages of a push."""
    pop_batch: Annotated[int, Meta(ge=1, le=10_000)] = 1
    partitions: Annotated[int, Meta(ge=1, le=1_000_000)] = 100
    spread: bool = False
    """Whether the messages of one push go to different partitions."""
    connections: Annotated[int, Meta(ge=1, le=50_000)] = 64
    """Of pushers; in `pop` mode of consumers."""
    consumers: Annotated[int, Meta(ge=1, le=50_000)] = 16
    """Connections of each group, end to end."""
    groups: Annotated[int, Meta(ge=1, le=1000)] = 1
    rate: Annotated[float, Meta(ge=0)] = 0.0
    """Messages a second; 0 is as many as go."""
    seconds: Annotated[float, Meta(gt=0, le=86_400)] = 10.0
    warm_up_seconds: Annotated[float, Meta(ge=0, le=3600)] = 1.0
    backlog: Annotated[int, Meta(ge=0)] = 100_000
    """Messages pushed before a `pop` load."""
    auto_ack: bool = False
    ack_and_pop: bool = False
    """Whether an ack asks for the next messages too, in one request."""
    keep_queue: bool = False
